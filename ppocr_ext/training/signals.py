"""Ctrl-C and termination at a step boundary, not in the middle of a step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class DeferredSignals:
    """While active, the first SIGINT or SIGTERM calls ``on_signal``; a second one acts at once.

    Only the main thread can receive signals; elsewhere this does nothing.
    """

    def __init__(self, on_signal: Callable[[int], None]) -> None:
        self._on_signal = on_signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> DeferredSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._received)
        return self

    def _received(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        self._on_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
