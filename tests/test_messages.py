"""The message for any exception: one sentence, without a traceback."""

from __future__ import annotations

import errno
import traceback

import pytest

from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.messages import WORKER_ENDED, error_text

DEBUG = "(run again with --debug to see where)"


def from_worker(error: Exception) -> Exception:
    """Return what Paddle makes of an exception in a worker process of a loader."""
    try:
        raise error
    except Exception:
        said = f"DataLoader worker(0) caught {type(error).__name__} with message:\n{traceback.format_exc()}"
    return type(error)(said)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfigError("my.yml:3: wrong.\n  more"), "my.yml:3: wrong.\n  more"),
        (
            from_worker(DataError("Train: a.txt:3: broken.\n  second line")),
            "Train: a.txt:3: broken.\n  second line",
        ),
        (from_worker(ValueError("no image")), f"internal error: ValueError: no image {DEBUG}"),
        (ZeroDivisionError("by zero"), f"internal error: ZeroDivisionError: by zero {DEBUG}"),
        (
            ImportError("libGL.so.1: cannot open shared object file: No such file or directory"),
            "libGL.so.1: cannot open shared object file: No such file or directory. Fix: "
            "apt-get install -y libgl1 libglib2.0-0 libgomp1",
        ),
        (
            ImportError("libfoo.so: cannot open"),
            f"internal error: ImportError: libfoo.so: cannot open {DEBUG}",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "out/latest.pdparams"),
            "out/latest.pdparams: No space left on device. Fix: free some space, or write to another place.",
        ),
        (
            ValueError(
                "(InvalidArgument) The shapes do not fit: [5] and (3).\n  [Hint: Expected K == 3.] "
                "(at /paddle/phi/binary.cc:3087)\n  [operator < linear > error]"
            ),
            f"Paddle failed: (InvalidArgument) The shapes do not fit: [5] and (3). {DEBUG}",
        ),
        (
            RuntimeError(
                "\n\n-----\nC++ Traceback (most recent call last):\n-----\n0  paddle::f()\n\n-----\n"
                "Error Message Summary:\n-----\nUnavailableError: The device is lost.\n"
                "  [Hint: look] (at /paddle/gpu.cc:7)"
            ),
            f"Paddle failed: UnavailableError: The device is lost. {DEBUG}",
        ),
        (
            IsADirectoryError(21, "Is a directory", "out/.page.html.7.tmp", None, "out/page.html"),
            "out/page.html: Is a directory. Fix: give the name of a file, not of a folder.",
        ),
        (RuntimeError(WORKER_ENDED), f"{WORKER_ENDED} {DEBUG}"),
        (
            SystemError(
                "(Fatal) DataLoader process (pid   1. If run …) exited is killed by signal: 17842.\nBus error"
            ),
            f"{WORKER_ENDED} {DEBUG}",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device. Fix: free some space, or give more shared memory (docker run --shm-size 8g).",
        ),
    ],
)
def test_sentences(error: Exception, said: str) -> None:
    assert error_text(error) == said


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("(ResourceExhausted) Fail to alloc memory of 4398046511104 size. (at /paddle/x.cc:44)"),
        SystemError("(ResourceExhausted) Out of memory error on GPU 0. (at /paddle/x.cc:44)"),
    ],
)
def test_too_little_memory_has_its_remedy(error: Exception) -> None:
    said = error_text(error)
    assert "batch_size_per_card" in said and "/paddle/" not in said


def test_a_recursion_that_does_not_end() -> None:
    def forever() -> None:
        forever()

    with pytest.raises(RecursionError) as raised:
        forever()
    assert "nested too deeply" in error_text(raised.value)


def test_paddles_own_error_as_it_is_raised() -> None:
    import paddle

    with pytest.raises(ValueError) as raised:
        paddle.nn.Linear(3, 4)(paddle.zeros([2, 5]))
    said = error_text(raised.value)
    assert said.startswith("Paddle failed: (InvalidArgument)")
    assert "Hint" not in said and "/paddle/" not in said and "\n" not in said
