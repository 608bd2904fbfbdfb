"""Describe the labels of a data set, and find those that are doubtful; no Paddle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from ppocr_ext.data.issue_rules import RULES, Tally, counted_issue, issues_of, shown
from ppocr_ext.issues import Issue
from ppocr_ext.sources.samples import Sample
from ppocr_ext.text_direction import VISUAL, is_right_to_left, order_of, order_votes

_REMEMBERED = 200_000  # images whose texts are compared, and groups whose splits are
_REVERSED = ("reversed_hebrew", "reversed_arabic")
_RULES = {
    code: rule for code, rule in RULES.items() if rule.character is not None
}  # of the text of one label
Spread = tuple[float, ...]  # what 5, 50 and 95 % of some values are at most


@dataclass(frozen=True)
class TextReport:
    """What the labels of a data set are like.

    Attributes:
        samples: how many samples there are.
        single: how many labels have one character.
        lengths: what 5, 50 and 95 % of the labels have at most, in characters.
        longest: the characters of the longest label, and its place.
        characters: the characters with their counts, the most frequent first.
        rarest: the rarest characters, each with its count and the place of its first occurrence.
        findings: issues of doubtful labels.
        order: the order in which words of right-to-left scripts are stored, ``"logical"`` or ``"visual"``; empty
            if they do not show it, or there are none.
    """

    samples: int
    single: int
    lengths: Spread
    longest: tuple[int, str]
    characters: dict[str, int]
    rarest: tuple[tuple[str, int, str], ...]
    findings: tuple[Issue, ...]
    order: str = ""


class TextSurvey:
    """Look at labels one by one; memory grows with the distinct characters, not with the labels.

    Of the first 200,000 images the texts are compared with those of later lines.

    Attributes:
        lengths: how many labels there are of each length, in characters.
    """

    def __init__(self) -> None:
        self.lengths: Counter[int] = Counter()
        self._longest = (0, "")
        self._characters: Counter[str] = Counter()
        self._first: dict[str, str] = {}  # character -> place
        self._doubts: dict[
            str, int
        ] = {}  # character -> the rules that it belongs to, and its direction, a bit each
        self._tally = Tally()
        self._texts: dict[int, int] = {}  # digest of the image's name -> digest of its text
        self._splits: dict[str, str] = {}  # group -> split of its first sample
        self._distinct: set[str] = set()  # texts, at most two
        self._orders: Counter[str] = Counter()

    def add(self, sample: Sample) -> None:
        """Take the next sample."""
        text = sample.text
        self.lengths[len(text)] += 1
        if len(text) > self._longest[0]:
            self._longest = (len(text), sample.place)
        self._characters.update(text)
        if len(self._distinct) < 2:
            self._distinct.add(text)
        try:
            doubts = set(map(self._doubts.__getitem__, text))
        except KeyError:
            doubts = self._meet(sample)
        if doubts != {0}:  # not plain
            self._check(sample, doubts)
        self._compare(sample)

    def _meet(self, sample: Sample) -> set[int]:
        """Note the new characters of a text; return what :meth:`add` looks up."""
        for character in sample.text:
            if character not in self._first:
                self._first[character] = sample.place
                doubts = [rule.character(character) for rule in _RULES.values() if rule.character]
                doubts.append(is_right_to_left(character))
                self._doubts[character] = sum(bool(each) << at for at, each in enumerate(doubts))
        return set(map(self._doubts.__getitem__, sample.text))

    def _check(self, sample: Sample, doubts: set[int]) -> None:
        """Count a label by the rules whose characters it has."""
        bits = reduce(or_, doubts, 0)
        if bits >> len(_RULES):
            self._orders.update(order_votes(sample.text))
        for at, (code, rule) in enumerate(_RULES.items()):
            if bits >> at & 1 and rule.label(sample.text):
                self._tally.count(code, sample.place, shown(sample.text))

    def _compare(self, sample: Sample) -> None:
        """Compare a sample with earlier ones of the same image, and of the same group."""
        image, text = hash((sample.image, sample.box)), hash(sample.text)
        earlier = self._texts.get(image)
        if earlier is not None:
            code = "repeated_line" if earlier == text else "other_text"
            self._tally.count(code, sample.place, shown(sample.text))
        elif len(self._texts) < _REMEMBERED:
            self._texts[image] = text
        if sample.group and sample.split:
            first = self._splits.get(sample.group, sample.split)
            if first != sample.split:
                self._tally.count("group_in_splits", sample.place, shown(sample.text))
            elif len(self._splits) < _REMEMBERED:
                self._splits[sample.group] = first

    def report(self) -> TextReport:
        """Return the result for the samples so far."""
        counts = self._characters
        total = self.lengths.total()
        rarest = sorted(counts, key=counts.__getitem__)[:10]
        order = order_of(self._orders)
        findings = [
            issue
            for issue in issues_of(self._tally, total)
            if RULES[issue.code].data(counts)
            and not (order == VISUAL and issue.code in _REVERSED)  # all are stored so
        ]
        if total > 1 and len(self._distinct) == 1:
            findings.append(
                counted_issue("one_text", total, total, [(self._longest[1], shown(min(self._distinct)))])
            )
        return TextReport(
            samples=total,
            single=self.lengths[1],
            lengths=spread_of(self.lengths.elements()),
            longest=self._longest,
            characters=dict(counts.most_common()),
            rarest=tuple((each, counts[each], self._first[each]) for each in rarest),
            findings=tuple(findings),
            order=order,
        )


def spread_of(values: Iterable[float], *shares: float) -> Spread:
    """Return what 5, 50 and 95 %, or other ``shares``, of the ``values`` are at most; zeros if there are none."""
    import numpy as np

    array = np.fromiter(values, np.float64)
    array = array if len(array) else np.zeros(1)
    return tuple(np.percentile(array, shares or (5, 50, 95), method="lower").tolist())


def likely_wrong(losses: Sequence[float], lengths: Sequence[int]) -> Any:
    """Return the samples in the order in which their labels are probably wrong: int [samples].

    A right label of L characters has a loss of about L times what a character usually costs, give or take the square
    root of L; a wrong character adds as much to a long label as to a short one. So the order is by the loss above
    the usual one, divided by the square root of L: the loss itself would put long labels first, the loss of a
    character short ones.

    Args:
        losses: the CTC loss of each sample, not divided by its length. Infinite ones, of labels with too few frames,
            come first; NaN comes last.
        lengths: the number of characters of each label.
    """
    import numpy as np

    loss = np.asarray(losses, np.float64)
    length = np.maximum(np.asarray(lengths, np.float64), 1)
    usual = np.median((loss / length)[np.isfinite(loss)]) if np.isfinite(loss).any() else 0.0
    excess = (loss - usual * length) / np.sqrt(length)
    return np.argsort(-np.nan_to_num(excess, nan=-np.inf, posinf=np.inf), kind="stable")
