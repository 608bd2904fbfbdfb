"""Which lines of an evaluation are worth a look: a few of any number, chosen as they pass."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

KEPT, KEPT_WRONG = 24, 18  # lines kept of an evaluation, and at most so many of them mistakes

T = TypeVar("T")


class Selection(Generic[T]):
    """The surest mistakes, where a label may be wrong, then the least sure of what was read right.

    Attributes:
        judged: lines that passed; ``wrong``: mistakes among them.
    """

    def __init__(self) -> None:
        self.judged = self.wrong = 0
        self._order = itertools.count()
        self._mistakes: list[tuple[float, int, T]] = []  # heaps; the entry to go first is on top
        self._right: list[tuple[float, int, T]] = []

    def add(self, right: bool, confidence: float, line: Callable[[], T]) -> None:
        """Count a line; ``line`` is called for what is to be kept of it, if it is kept for now."""
        self.judged += 1
        self.wrong += not right
        heap, most, worth = (
            (self._right, KEPT, -confidence) if right else (self._mistakes, KEPT_WRONG, confidence)
        )
        if len(heap) < most:
            heapq.heappush(heap, (worth, -next(self._order), line()))
        elif worth > heap[0][0]:
            heapq.heapreplace(heap, (worth, -next(self._order), line()))

    def chosen(self) -> list[T]:
        """Mistakes first, then what is right; at most :data:`KEPT`; of equals those that came first."""
        ordered = [*sorted(self._mistakes, key=_last_to_go), *sorted(self._right, key=_last_to_go)]
        return [line for _, _, line in ordered][:KEPT]


def _last_to_go(entry: tuple[float, int, object]) -> tuple[float, int]:
    return -entry[0], -entry[1]
