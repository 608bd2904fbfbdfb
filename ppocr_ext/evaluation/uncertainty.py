"""How sure a share and a change between two evaluations of the same items are; imports NumPy alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

_RISK = 0.05  # of a wrong verdict, and of a loss beyond `most_lost`
_POWER = 0.8  # chance that `items_to_exclude` items exclude a loss
_ALIKE = 0.2  # correlation of a page's items that limits allow for
_STEPS = 60  # halvings of the interval that a limit is searched in


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % confidence interval (Wilson, 1927).

    Attributes:
        hits: the number of cases that count.
        total: the number of all cases.
    """

    hits: int
    total: int

    @property
    def value(self) -> float:
        """The share; NaN if the total is 0."""
        return self.hits / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper bound; (0, 1) if the total is 0."""
        if not self.total:
            return 0.0, 1.0
        z = _z(0.025)
        share = self.value
        n = self.total
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.2%} of {self.total:,} (95 % interval {low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class Changes:
    """What changed between two evaluations of the same items.

    The test is McNemar's (1947), the limits are Tango's (1998). Items of one page are not independent: where pages are
    known, the test also flips the sign of whole pages, which holds for all correlations. The limits count fewer items
    (Kish, 1965), and hold for changes that correlate by up to 0.2 within a page.

    Attributes:
        only_before: items that were correct before and are wrong after.
        only_after: items that were wrong before and are correct after.
        total: all items.
        pages: correct items won and all items of each page; empty if each item stands alone.
    """

    only_before: int
    only_after: int
    total: int
    pages: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, before: Sequence[bool], after: Sequence[bool], pages: Sequence[str] = ()) -> Changes:
        """Compare what was correct before and after.

        Args:
            before, after: of each item.
            pages: page of each item; empty if they are unknown.

        Raises:
            ValueError: the lengths differ.
        """
        steps = [int(new) - int(old) for old, new in zip(before, after, strict=True)]
        won, counts = Counter[str](), Counter(pages)
        for page, step in zip(pages, steps, strict=bool(pages)):
            won[page] += step
        by_page = tuple((won[page], count) for page, count in counts.items())
        return cls(steps.count(-1), steps.count(1), len(steps), by_page if len(by_page) < len(steps) else ())

    @property
    def gain(self) -> float:
        """Return the share of correct items after, less that before."""
        return (self.only_after - self.only_before) / self.total

    @property
    def p_value(self) -> float:
        """Return the two-sided p-value, 1 if nothing changed: of single items, or of pages if that is larger."""
        alone = [1] * self.only_after + [-1] * self.only_before
        return max(_chance(alone), _chance([step for step, _ in self.pages] or alone))

    @property
    def verdict(self) -> str:
        """Return ``better``, ``worse``, or an empty text if it cannot be told."""
        if self.p_value >= _RISK:
            return ""
        return "better" if self.gain > 0 else "worse"

    @property
    def _alike(self) -> float:
        """Return how many items count as one: the design effect of pages of these sizes; 1 if items stand alone."""
        return 1 + _ALIKE * sum(count * (count - 1) for _, count in self.pages) / self.total

    def interval(self, tail: float = 0.025) -> tuple[float, float]:
        """Return the limits of the gain, each exceeded with the chance ``tail``."""
        lost, won, n = (count / self._alike for count in (self.only_before, self.only_after, self.total))
        return _least_gain(won, lost, n, _z(tail)), -_least_gain(lost, won, n, _z(tail))

    @property
    def most_lost(self) -> float:
        """Return the largest loss that is not excluded with 95 %, from 0 to 1; it never falls if more is lost.

        Unless it is 0, it is at least Clopper and Pearson's limit (1934) for none lost.
        """
        if self.verdict == "better":
            return 0.0
        return max(1 - _RISK ** (self._alike / self.total), -self.interval(_RISK)[0])

    def items_to_exclude(self, loss: float) -> int:
        """Return how many items exclude a loss with a chance of 80 % if nothing is lost and as many items change.

        From the score test at the limit (Nam, 1997), for pages of the same sizes.

        Args:
            loss: above 0, below 1.
        """
        share = (self.only_before + self.only_after) / self.total
        at_limit = _variance(share / 2, share / 2, 1, -loss)
        spread = _z(_RISK) * math.sqrt(at_limit) + _z(1 - _POWER) * math.sqrt(share)
        unchanged = math.log(_RISK) / math.log1p(-loss)
        return math.ceil(max(unchanged, (spread / loss) ** 2) * self._alike)


def _chance(steps: Sequence[int]) -> float:
    """Return the chance of a sum as far from 0 if each step is as likely up as down."""
    chances = np.ones(1)  # of each sum of the steps that are won by chance
    for size, count in Counter(abs(step) for step in steps if step).items():
        spread = np.zeros(size * count + 1)
        spread[::size] = _coins(count)
        chances = np.convolve(chances, spread)
    fewer = (sum(map(abs, steps)) - abs(sum(steps))) // 2  # lost, or won if that is less
    return min(1.0, 2 * float(chances[: fewer + 1].sum()))


def _z(tail: float) -> float:
    """Return what a normal variable exceeds with the chance ``tail``."""
    return NormalDist().inv_cdf(1 - tail)


def _coins(count: int) -> np.ndarray:
    """Return the chance of 0, 1, … heads of ``count`` coins; by logarithms, since the coefficients have no float."""
    logs = np.cumsum(np.log(np.maximum(1, np.arange(count + 1))))  # of the factorials
    return np.exp(logs[-1] - logs - logs[::-1] - count * math.log(2))


def _variance(won: float, lost: float, total: float, gain: float) -> float:
    """Return the variance of an item's step if the gain is ``gain``, most likely with these counts (Tango, 1998)."""
    b = (2 * total - won + lost) * gain - won - lost
    c = -lost * gain * (1 - gain)
    share_lost = (math.sqrt(max(0.0, b * b - 8 * total * c)) - b) / (4 * total)
    return max(0.0, 2 * share_lost + gain * (1 - gain))


def _least_gain(won: float, lost: float, total: float, z: float) -> float:
    """Return the smallest gain that the score test does not reject at ``z`` standard deviations (Tango, 1998)."""
    low, high = -1.0, (won - lost) / total
    for _ in range(_STEPS):
        middle = (low + high) / 2
        rejected = won - lost - total * middle > z * math.sqrt(total * _variance(won, lost, total, middle))
        low, high = (middle, high) if rejected else (low, middle)
    return low
