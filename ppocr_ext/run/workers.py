"""Start and end the worker processes of Paddle's loader."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ppocr_ext.errors import DataError

_PR_SET_PDEATHSIG = 1  # number of the option in Linux's prctl.h


def leave_signals_to_the_run(worker: int) -> None:
    """Put a worker process into its own process group, so that Ctrl-C and a scheduler's SIGTERM reach the run only.

    The run ends its workers itself. If the run is killed, Linux ends them.
    """
    os.setpgid(0, 0)
    # Printing a warning in the background would stop it otherwise.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def ending_workers_without_memory(count: int) -> Iterator[None]:
    """End the workers that have started inside this context if shared memory is not enough for all of them.

    Paddle's iterator over them is half made then, and would wait for them at the end of the process.

    Args:
        count: the number of workers, for the message.

    Raises:
        DataError: the system has no space for their queues.
    """
    try:
        yield
    except OSError as error:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            iterator: Any = frame.f_locals.get("self")
            if hasattr(iterator, "_try_shutdown_all"):
                iterator._shutdown = True
                for worker in iterator._workers:
                    worker.kill()
        if error.errno != errno.ENOSPC:
            raise
        raise DataError(
            f"The loader cannot start its worker processes ({count}): /dev/shm, through which they get their work, is "
            f"full. Fix: more shared memory (docker run --shm-size 8g), fewer loader.num_workers, or 0.",
            code="no_shared_memory",
        ) from error
