"""What a survey finds in labels and images, each with its count, examples and a fix; no Paddle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

EXAMPLES = 5  # of a finding
_SHOWN = 80  # characters of an example
Level = Literal["warning", "note"]


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

    def __str__(self) -> str:
        """Return message, first example and fix in one line."""
        first = "".join(f" ({place}: '{text}')" for place, text in self.examples[:1])
        return f"{self.message}{first}. Fix: {self.fix}"


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

    def finding(self, code: str, level: Level, total: int, what: str, fix: str) -> Finding:
        """Return the finding of ``code`` among ``total``, such as ``3 of 24 labels contain a tab``."""
        count = self.counts[code]
        message = f"{count:,} of {total:,} {what}"
        return Finding(code, level, count, count / total, tuple(self._examples[code]), message, fix)


class Spread(NamedTuple):
    """How values are spread: 5, 50 and 95 % of them are at most this."""

    p5: float
    p50: float
    p95: float


def spread_of(values: Iterable[float]) -> Spread:
    """Return the spread of ``values``; zeros if there is none."""
    import numpy as np

    array = np.fromiter(values, np.float64)
    return Spread(*np.percentile(array if len(array) else [0.0], (5, 50, 95), method="lower").tolist())


def shown(text: str) -> str:
    """Return the start of ``text`` with characters that cannot be seen as ``\\u200b``."""
    start = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in start)
