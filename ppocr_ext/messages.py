"""What went wrong, as a sentence: for any exception, also one from Paddle or from a loader's worker process."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from ppocr_ext.errors import PPOCRExtError

INSTALL_PADDLE = "pip install 'ppocr-ext[cpu]'"
DEBUG = "(run again with --debug to see where)"
_WORKER = re.compile(r"DataLoader worker\(\d+\) caught \w+ with message:\n")
# the last line of a traceback: an exception's dotted name, then what it says
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*): (?P<said>.*)", re.MULTILINE | re.DOTALL)
_PADDLE_KIND = re.compile(r"^\((?P<kind>[A-Z]\w+)\) ")
_PADDLE_PLACE = re.compile(r"\s*\(at [^()]*:\d+\)|\s*\[operator < [^<>]* > error\]")
_PADDLE_HINT = re.compile(r"\s*\[Hint: .*", re.DOTALL)
_BY_THE_SYSTEM = {
    errno.ENOSPC: "Free some space, or write elsewhere.",
    errno.EACCES: "Choose a folder that you may write to.",
    errno.EPERM: "Choose a folder that you may write to.",
    errno.EROFS: "Choose a folder that can be written to.",
    errno.EEXIST: "Choose another name, or move that file away.",
    errno.ENOTDIR: "Choose another name, or move that file away.",
    errno.EISDIR: "It is a folder: name a file.",
    errno.EMFILE: "Close other programs, or raise the limit: `ulimit -n 4096`.",
}
MEMORY = (
    "Not enough memory. Use a smaller Train.loader.batch_size_per_card (Eval.loader… in an evaluation), or fewer "
    "loader.num_workers"
)
WORKER_ENDED = (
    "A worker process of a loader has ended: killed for lack of memory, or of shared memory. Use fewer "
    "loader.num_workers, or set loader.use_shared_memory: false."
)


def shortened(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first ``most`` of ``names`` joined, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def did_you_mean(name: object) -> str:
    """Return the hint ``" Did you mean 'x'?"``, to be put behind a sentence; empty if ``name`` is None."""
    return "" if name is None else f" Did you mean {name!r}?"


def error_text(error: BaseException) -> str:
    """What ``error`` says to a user: what happened, and what to do where that is known.

    An exception that is no :class:`PPOCRExtError` was not foreseen: the sentence says so and that
    ``--debug`` shows where it was raised.
    """
    if isinstance(error, PPOCRExtError):
        return _without_traceback(str(error))[1]
    if isinstance(error, ModuleNotFoundError):
        return _missing(error)
    if isinstance(error, MemoryError):
        said = _of_paddle(str(error))
        return f"{MEMORY}{f' ({said})' if said else ''}. {DEBUG}"
    if isinstance(error, RecursionError):
        return f"Something is nested too deeply, or refers to itself: {error}. {DEBUG}"
    if isinstance(error, OSError) and error.errno is not None:
        return _refused_by_system(error)
    kind, said = _without_traceback(str(error))
    if kind.endswith("Error") and kind.startswith("ppocr_ext."):
        return said
    return f"{_unforeseen(kind or type(error).__name__, said)} {DEBUG}"


def end_text(error: BaseException) -> str:
    """What ended a run, for a record: as :func:`error_text`, without the option that shows more."""
    if not isinstance(error, Exception):  # told to end
        return type(error).__name__
    return error_text(error).removesuffix(DEBUG).rstrip()


def _unforeseen(kind: str, said: str) -> str:
    if said == WORKER_ENDED:
        return said
    if _PADDLE_KIND.match(said) or "Error Message Summary" in said:
        if "ResourceExhausted" in said or "Out of memory" in said:
            return f"{MEMORY} ({_of_paddle(said)})."
        return f"Paddle cannot go on: {_of_paddle(said)}"
    return f"internal error: {kind}: {said}"


def _of_paddle(said: str) -> str:
    """Paddle's own sentence without its C++ traceback, places in its source, and hints for its authors."""
    summary = said.rpartition("Error Message Summary:")[2]
    lines = [line for line in summary.splitlines() if line.strip() and not line.startswith("-----")]
    return _PADDLE_PLACE.sub("", _PADDLE_HINT.sub("", "\n".join(lines))).strip()


def _without_traceback(said: str) -> tuple[str, str]:
    """``(exception, what it says)`` at the end of a traceback that a worker process sent; else ``("", said)``."""
    if not _WORKER.match(said):
        return "", said
    frames = said.rpartition('\n  File "')[2]
    raised = _RAISED.search(frames)
    return (raised["type"], raised["said"].strip()) if raised else ("", said.splitlines()[0])


def _refused_by_system(error: OSError) -> str:
    """What the system would not do: no space, no permission, a file where a folder should be."""
    named = error.filename2 or error.filename  # of a rename the name that is wanted, not the temporary one
    where = f"{named}: " if named else ""
    return f"{where}{error.strerror or error}. {_BY_THE_SYSTEM.get(error.errno or 0, '')}".strip()


def _missing(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    if package == "paddle":
        return f"Paddle is not installed. Install it: {INSTALL_PADDLE}"
    if package in ("captcha", "matplotlib"):
        return f"{error}. Install it: pip install 'ppocr-ext[quickstart]'"
    return f"{error}. Run `ppocr-ext doctor` to see what is missing and how to install it."
