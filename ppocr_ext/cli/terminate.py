"""SIGTERM as an exception, so that temporary files go and the exit code is 128 + 15."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):  # noqa: N818 - like KeyboardInterrupt, no error
    """The process was told to end."""


@contextmanager
def termination_raises() -> Iterator[None]:
    """Raise :class:`Terminated` where SIGTERM arrives while the context lasts.

    A forked worker process, which inherits this, ends as without it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def received(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise Terminated

    before = signal.signal(signal.SIGTERM, received)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
