"""What characters a recogniser takes for which: counted from labels and predictions. Imports no Paddle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rapidfuzz.distance import Levenshtein

from ppocr_ext.characters.look_alikes import look_alikes_of

NOTHING = ""  # the other side of an insertion or a deletion


@dataclass(frozen=True)
class CharacterScore:
    """How one character is read.

    Attributes:
        count: times it stands in the labels.
        read: times it was read, rightly or not.
        correct: times it was read where it stands.
    """

    count: int = 0
    read: int = 0
    correct: int = 0

    @property
    def recall(self) -> float:
        """Share of its occurrences that were read; NaN where it does not occur."""
        return self.correct / self.count if self.count else math.nan

    @property
    def precision(self) -> float:
        """Share of its readings that are right; NaN where it was never read."""
        return self.correct / self.read if self.read else math.nan


@dataclass
class Confusions:
    """Counts over all lines.

    Attributes:
        lines: lines compared; ``correct_lines``: of them read without any error.
        characters: score of each character.
        pairs: how often (character, what was read for it) occurred; one side is empty for an omission or an
            insertion.
        examples: indices of the first lines with each pair.
    """

    lines: int = 0
    correct_lines: int = 0
    characters: dict[str, CharacterScore] = field(default_factory=dict)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Share of lines read without any error; NaN without lines."""
        return self.correct_lines / self.lines if self.lines else math.nan

    def substitutions(self) -> list[tuple[str, str, int]]:
        """(character, read as, count), the most frequent first; ties in the order of the characters."""
        swapped = [(a, b, n) for (a, b), n in self.pairs.items() if a != NOTHING and b != NOTHING]
        return sorted(swapped, key=lambda pair: (-pair[2], pair[0], pair[1]))


def align(label: str, prediction: str) -> list[tuple[str, str]]:
    """(character, what was read for it) along the cheapest edit path; equal pairs included.

    One side is empty for an omission or an insertion.
    """
    pairs: list[tuple[str, str]] = []
    for step in Levenshtein.opcodes(label, prediction):
        left = label[step.src_start : step.src_end]
        right = prediction[step.dest_start : step.dest_end]
        if step.tag in ("equal", "replace"):
            pairs.extend(zip(left, right, strict=True))
        elif step.tag == "delete":
            pairs.extend((c, NOTHING) for c in left)
        else:
            pairs.extend((NOTHING, c) for c in right)
    return pairs


def count_confusions(lines: Iterable[tuple[str, str]], examples: int = 8) -> Confusions:
    """Count over (label, prediction) of each line.

    Args:
        lines: labels with what was read.
        examples: lines that are kept for each pair.
    """
    result = Confusions()
    count: Counter[str] = Counter()
    read: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for index, (label, prediction) in enumerate(lines):
        result.lines += 1
        result.correct_lines += label == prediction
        count.update(label)
        read.update(prediction)
        for pair in align(label, prediction):
            if pair[0] == pair[1]:
                correct[pair[0]] += 1
                continue
            result.pairs[pair] += 1
            kept = result.examples.setdefault(pair, [])
            if len(kept) < examples and (not kept or kept[-1] != index):
                kept.append(index)
    for character in sorted({*count, *read}):
        result.characters[character] = CharacterScore(count[character], read[character], correct[character])
    return result


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % confidence interval (Wilson, 1927).

    Attributes:
        hits: how many; ``total``: of how many.
    """

    hits: int
    total: int

    @property
    def value(self) -> float:
        """The share; NaN of nothing."""
        return self.hits / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper bound; (0, 1) of nothing."""
        if not self.total:
            return 0.0, 1.0
        z = 1.959963984540054
        share, n = self.value, self.total
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)


def look_alike_errors(lines: Iterable[tuple[str, str]], groups: Sequence[str]) -> Rate:
    """Of the characters in ``groups``, how many were read as another one of their own group.

    Args:
        lines: (label, prediction) of each line.
        groups: look-alikes, such as ``["未末", "O0"]``; a character may be in several.
    """
    confused = look_alikes_confused(lines, groups)
    return Rate(sum(confused), len(confused))


def look_alikes_confused(lines: Iterable[tuple[str, str]], groups: Sequence[str]) -> list[bool]:
    """For each character of the labels that is in a group, in order, whether another one of it was read.

    Of two readings of the same lines the lists have the same length, entry by entry of the same character.
    """
    return [wrong for _, wrong in _look_alikes_read(lines, groups)]


def errors_by_character(lines: Iterable[tuple[str, str]], groups: Sequence[str]) -> dict[str, Rate]:
    """Of each character in ``groups`` that occurs, how often it was read as another one of its groups.

    Args:
        lines: (label, prediction) of each line.
        groups: look-alikes.
    """
    hits: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for character, wrong in _look_alikes_read(lines, groups):
        total[character] += 1
        hits[character] += wrong
    return {character: Rate(hits[character], count) for character, count in total.items()}


def _look_alikes_read(lines: Iterable[tuple[str, str]], groups: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each character of the labels that is in a group, in order, and whether another one of it was read."""
    rivals = look_alikes_of(groups)
    for label, prediction in lines:
        for character, reading in align(label, prediction):
            if character in rivals:
                yield character, reading in rivals[character]


def errors_by_group(lines: Iterable[tuple[str, str]], groups: Sequence[str]) -> dict[str, Rate]:
    """For each group, how many of its characters were read as another one of it.

    A character counts in each of its groups.

    Args:
        lines: (label, prediction) of each line.
        groups: look-alikes.

    Returns:
        In the order of ``groups``, those whose characters occur.
    """
    groups_of: dict[str, list[str]] = {}
    for group in dict.fromkeys(groups):
        for character in dict.fromkeys(group):
            groups_of.setdefault(character, []).append(group)
    hits: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for label, prediction in lines:
        for character, reading in align(label, prediction):
            for group in groups_of.get(character, ()):
                total[group] += 1
                hits[group] += reading != NOTHING and reading != character and reading in group
    return {group: Rate(hits[group], total[group]) for group in dict.fromkeys(groups) if total[group]}


@dataclass(frozen=True)
class McNemar:
    """Whether two readings of the same lines, or characters, differ in more than chance (McNemar, 1947; exact).

    Attributes:
        only_before: how many were right before and are wrong after.
        only_after: how many were wrong before and are right after.
    """

    only_before: int
    only_after: int

    @property
    def p_value(self) -> float:
        """Two-sided, from the binomial distribution; 1 where no line changed."""
        n, k = self.only_before + self.only_after, min(self.only_before, self.only_after)
        if n == 0:
            return 1.0
        tail = math.fsum(math.exp(_log_choose(n, i) - n * math.log(2)) for i in range(k + 1))
        return min(1.0, 2 * tail)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def mcnemar(before: Sequence[bool], after: Sequence[bool]) -> McNemar:
    """Compare what was right before and after.

    Raises:
        ValueError: they are not of the same length.
    """
    pairs = list(zip(before, after, strict=True))
    return McNemar(sum(b and not a for b, a in pairs), sum(a and not b for b, a in pairs))
