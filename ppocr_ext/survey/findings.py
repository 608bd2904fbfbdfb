"""What a survey finds in labels and images, each with its count, examples and a fix; no Paddle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

EXAMPLES = 5  # of a finding
_SHOWN = 80  # characters of an example
Level = Literal["warning", "note"]
Spread = tuple[float, ...]  # what 5, 50 and 95 % of some values are at most


@dataclass(frozen=True)
class Finding:
    """Something doubtful in the data.

    Attributes:
        code: stable name of the kind of finding, such as ``"double_space"``.
        level: ``"warning"``: it probably harms a training; ``"note"``: it may be intended.
        count: labels or images that have it.
        share: of all that were looked at, from 0 to 1.
        examples: place (file and line) and label or other detail of the first of them, as :func:`shown` returns it.
        message: what is found, a sentence.
        fix: what to do about it, a sentence.
    """

    code: str
    level: Level
    count: int
    share: float
    examples: tuple[tuple[str, str], ...]
    message: str
    fix: str


class Tally:
    """Count what is found by code, and keep the first examples of each code."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._examples: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)

    def add(self, code: str, place: str, text: str) -> None:
        """Count one more, with its example."""
        self.counts[code] += 1
        if self.counts[code] <= EXAMPLES:
            self._examples[code].append((place, shown(text)))

    def findings(self, rules: Iterable[tuple[str, Level, str, str]], total: int) -> tuple[Finding, ...]:
        """Return what was found of ``rules``: code, level, what follows ``3 of 24`` in the message, and fix."""
        return tuple(
            Finding(code, level, n, n / total, tuple(self._examples[code]), f"{n:,} of {total:,} {what}", fix)
            for code, level, what, fix in rules
            if (n := self.counts[code])
        )


def spread_of(values: Iterable[float], *shares: float) -> Spread:
    """Return what 5, 50 and 95 %, or other ``shares``, of the ``values`` are at most; zeros if there are none."""
    import numpy as np

    array = np.fromiter(values, np.float64)
    array = array if len(array) else np.zeros(1)
    return tuple(np.percentile(array, shares or (5, 50, 95), method="lower").tolist())


def shown(text: str) -> str:
    """Return the start of ``text`` with characters that cannot be seen as ``\\u200b``."""
    start = text[:_SHOWN] + "…" * (len(text) > _SHOWN)
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in start)
