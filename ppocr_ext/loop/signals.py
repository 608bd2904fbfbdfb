"""Handle Ctrl-C and termination at a step boundary, not in the middle of a step."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_REPEATED = 2.0  # seconds; Paddle's launcher sends SIGTERM three times, a fifth of a second apart


class DeferredSignals:
    """While active, the first SIGINT or SIGTERM calls ``on_signal``; a second one acts at once.

    A SIGTERM that follows another within two seconds is the same one.

    Only the main thread can receive signals; elsewhere this does nothing.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}
        self._first: tuple[int, float] | None = None

    def __enter__(self) -> DeferredSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._received)
                # a signal amid Paddle's talk with other processes would otherwise be an error there
                signal.siginterrupt(number, False)
        return self

    def _received(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = (number, now)
            self._on_signal(number)
            return
        before, when = self._first
        if number == before == signal.SIGTERM and now - when < _REPEATED:
            return
        self._restore()
        signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # None: it was no handler of Python's
                signal.signal(number, handler)
        self._before = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
