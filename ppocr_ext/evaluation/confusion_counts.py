"""Count which characters a recogniser confuses, from labels and predictions. Imports no Paddle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

NOTHING = ""  # the other side of an insertion or a deletion
_EXAMPLES = 8  # samples kept for each pair


@dataclass(frozen=True)
class CharacterScore:
    """How well one character is recognised.

    Attributes:
        count: occurrences in the labels.
        predicted: occurrences in the predictions.
        correct: occurrences in the labels that were predicted.
    """

    count: int = 0
    predicted: int = 0
    correct: int = 0

    @property
    def recall(self) -> float:
        """Share of the occurrences that were predicted; NaN without an occurrence."""
        return self.correct / self.count if self.count else math.nan

    @property
    def precision(self) -> float:
        """Share of the predictions that are correct; NaN if it was never predicted."""
        return self.correct / self.predicted if self.predicted else math.nan


@dataclass(frozen=True)
class ConfusionCounts:
    """Counts over all samples.

    Attributes:
        characters: score of each character.
        pairs: count of each (character, predicted character); one is empty for a deletion or an insertion.
        examples: indices of the first samples with each pair.
    """

    characters: dict[str, CharacterScore]
    pairs: Counter[tuple[str, str]]
    examples: dict[tuple[str, str], list[int]]

    def substitutions(self) -> list[tuple[str, str, int]]:
        """Return (character, predicted, count), the most frequent first; ties in the order of the characters."""
        swapped = [(a, b, n) for (a, b), n in self.pairs.items() if a != NOTHING and b != NOTHING]
        return sorted(swapped, key=lambda pair: (-pair[2], pair[0], pair[1]))


def align(label: str, prediction: str) -> list[tuple[str, str]]:
    """Return (character, predicted character) along the cheapest edit path, equal pairs included.

    One side is empty for a deletion or an insertion.
    """
    pairs: list[tuple[str, str]] = []
    for step in Levenshtein.opcodes(label, prediction):
        left = label[step.src_start : step.src_end]
        right = prediction[step.dest_start : step.dest_end]
        if step.tag in ("equal", "replace"):
            pairs.extend(zip(left, right, strict=True))
        else:  # one side is empty
            pairs.extend([*((c, NOTHING) for c in left), *((NOTHING, c) for c in right)])
    return pairs


def count_confusions(samples: Iterable[tuple[str, str]], examples: int = _EXAMPLES) -> ConfusionCounts:
    """Count the confusions of samples.

    Args:
        samples: (label, prediction) of each.
        examples: samples kept for each pair.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    kept: dict[tuple[str, str], list[int]] = {}
    count: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for index, (label, prediction) in enumerate(samples):
        count.update(label)
        predicted.update(prediction)
        for pair in align(label, prediction):
            if pair[0] == pair[1]:
                correct[pair[0]] += 1
                continue
            pairs[pair] += 1
            indices = kept.setdefault(pair, [])
            if len(indices) < examples and index not in indices[-1:]:
                indices.append(index)
    characters = sorted({*count, *predicted})
    scores = {c: CharacterScore(count[c], predicted[c], correct[c]) for c in characters}
    return ConfusionCounts(scores, pairs, kept)


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % confidence interval (Wilson, 1927).

    Attributes:
        hits: the number of cases.
        total: out of how many.
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
        z = 1.959963984540054
        share = self.value
        n = self.total
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)


def look_alike_errors(samples: Iterable[tuple[str, str]], groups: Sequence[str]) -> Rate:
    """Return how many characters of ``groups`` were confused with another character of the same group.

    Args:
        samples: (label, prediction) of each.
        groups: look-alikes, such as ``["未末", "O0"]``; a character may be in several groups.
    """
    confused = look_alikes_confused(samples, groups)
    return Rate(sum(confused), len(confused))


def look_alikes_confused(samples: Iterable[tuple[str, str]], groups: Sequence[str]) -> list[bool]:
    """Return whether each character of the labels that is in a group was confused within a group, in order.

    Two evaluations of the same samples give lists of the same length for the same characters.
    """
    return [any(confused.values()) for _, confused in characters_in_groups(samples, groups)]


def errors_by_group(samples: Iterable[tuple[str, str]], groups: Sequence[str]) -> dict[str, Rate]:
    """Return for each group how many of its characters were confused within it; a character counts in each group.

    Args:
        samples: (label, prediction) of each.
        groups: look-alikes.

    Returns:
        The groups that occur, in the order of ``groups``.
    """
    hits: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for _, confused in characters_in_groups(samples, groups):
        total.update(confused.keys())
        hits.update(group for group, wrong in confused.items() if wrong)
    return {group: Rate(hits[group], total[group]) for group in dict.fromkeys(groups) if total[group]}


def characters_in_groups(
    samples: Iterable[tuple[str, str]], groups: Sequence[str]
) -> Iterator[tuple[str, dict[str, bool]]]:
    """Yield each character of the labels that is in a group, with its groups: True if it was confused within one."""
    groups_of: dict[str, list[str]] = {}
    for group in dict.fromkeys(groups):
        for character in dict.fromkeys(group):
            groups_of.setdefault(character, []).append(group)
    for label, prediction in samples:
        for character, read in align(label, prediction):
            if character in groups_of:
                wrong = read not in (NOTHING, character)
                yield character, {group: wrong and read in group for group in groups_of[character]}


@dataclass(frozen=True)
class McNemar:
    """The exact test whether two evaluations of the same items differ by more than chance (McNemar, 1947).

    Attributes:
        only_before: items that were correct before and are wrong after.
        only_after: items that were wrong before and are correct after.
    """

    only_before: int
    only_after: int

    @classmethod
    def of(cls, before: Sequence[bool], after: Sequence[bool]) -> McNemar:
        """Compare what was correct before and after.

        Raises:
            ValueError: the lengths differ.
        """
        pairs = list(zip(before, after, strict=True))
        return cls(sum(b and not a for b, a in pairs), sum(a and not b for b, a in pairs))

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the binomial distribution; 1 if no item changed."""
        n = self.only_before + self.only_after
        k = min(self.only_before, self.only_after)
        # logarithms, since the binomial coefficients of many items have no float
        logs = (math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(k + 1))
        return min(1.0, 2 * math.fsum(math.exp(log - n * math.log(2)) for log in logs))
