"""Describe the labels of a data set, and find those that are doubtful; no Paddle.

``RULES`` has one row for each kind of doubt.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from ppocr_ext.sources.samples import Sample
from ppocr_ext.survey.findings import Finding, Level, Spread, Tally, shown, spread_of
from ppocr_ext.text_direction import VISUAL, is_right_to_left, order_of, order_votes

_REMEMBERED = 200_000  # images whose texts are compared, and groups whose splits are

_LATIN = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
_GREEK = r"\u0370-\u0373\u0376-\u037d\u037f\u0386\u0388-\u03ff\u1f00-\u1fff"
_CYRILLIC = r"\u0400-\u0481\u048a-\u052f"
# The joiners U+200C and U+200D belong to the spelling after letters of these scripts, emoji, and each other.
_JOINED = r"\u0620-\u06d3\u0750-\u07ff\u0860-\u109f\u1780-\u1aff\u200c\u200d\ufe0f\U0001f000-\U0001faff"
# In Thai, Lao, Tibetan, Burmese and Khmer U+200B separates words.
_UNSPACED = r"\u0e00-\u109f\u1780-\u17ff\u200b"
_NIQQUD = r"\u0591-\u05bd\u05bf-\u05c7"  # vowels of Hebrew
_HARAKAT = r"\u064b-\u065f\u0670\u06d6-\u06ed"  # vowels of Arabic
_ARABIC = r"\u0620-\u064a\u066e\u066f\u0671-\u06d3\u06d5"
_INVISIBLE = (  # everywhere, so without U+200B, U+200C and U+200D
    r"\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u061c\u180e\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
)

# Cyrillic and Greek letters that look like Latin ones; not μ, Ω and ν, which stand in units and formulas
_LIKE_LATIN = "АВЕКМНОРСТУХІЈЅЁЇҮҺӀԚԜаеорсухіјѕёїһӏԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧο"
_LIKE_OTHERS = "ABCEHIJKMNOPTXYZËÏaceijopxyëï"  # Latin letters that look like Cyrillic or Greek ones
_OTHER = _GREEK + _CYRILLIC

_is_latin = re.compile(f"[{_LATIN}]").match
_is_other = re.compile(f"[{_OTHER}]").match
# radicals of Chinese characters, ligatures, letters of formulas
_is_variant = re.compile(r"[\u2e80-\u2fd5\ufb00-\ufb06\U0001d400-\U0001d7ff]").match
_is_mixed = re.compile(  # a word of Latin and other letters, where those of one script are all look-alikes
    rf"(?<![{_LATIN}{_OTHER}])(?=[{_OTHER}]*[{_LATIN}])(?=[{_LATIN}]*[{_OTHER}])"
    rf"([{_LATIN}{_LIKE_LATIN}]+|[{_OTHER}{_LIKE_OTHERS}]+)(?![{_LATIN}{_OTHER}])"
).search


def _only_look_alikes(characters: Collection[str]) -> bool:
    """Return True if the data have Latin letters, and of Greek and Cyrillic only what looks like them."""
    return any(map(_is_latin, characters)) and set(filter(_is_other, characters)) <= set(_LIKE_LATIN)


def _has_both_widths(characters: Collection[str]) -> object:
    """Tell if the data have full-width and half-width digits, or letters."""
    return re.search(
        "^(?=.*[０-９])(?=.*[0-9])|^(?=.*[Ａ-Ｚａ-ｚ])(?=.*[A-Za-z])", "".join(characters), re.DOTALL
    )


def _is_decomposed(text: str) -> bool:
    """Return True if NFC joins characters of ``text``.

    NFC also reorders marks, but Arabic and Hebrew with vowels are usually written in another order.
    """
    return len(unicodedata.normalize("NFC", text)) < len(text)


def _has_twin(character: str) -> object:
    """Tell if another code point, the usual one, looks the same: Å U+00C5 for U+212B, 一 for U+2F00."""
    usual = unicodedata.normalize("NFKC", character)
    is_same = len(usual) == 1 and unicodedata.normalize("NFC", character) == usual
    return usual != character and (is_same or _is_variant(character))


class Rule(NamedTuple):
    """A kind of doubt about labels.

    Attributes:
        code, fix: of its finding.
        what: the message after ``3 of 24 labels``.
        character: true for a character that each such label has; most labels are decided by it alone.
        label: true for such a label, among those with such a character.
        data: true if the rule applies to data with these characters.
        level: of its finding.
    """

    code: str
    what: str
    fix: str
    character: Callable[[str], object]
    label: Callable[[str], object] = bool
    data: Callable[[Collection[str]], object] = bool
    level: Level = "warning"


def _any(characters: str) -> Callable[[str], object]:
    """Return the function that finds one of these ``characters``, a class of a regular expression."""
    return re.compile(f"[{characters}]").search


_never = re.compile("(?!)").search  # for the rules that TextSurvey applies itself
_REVERSED = ("reversed_hebrew", "reversed_arabic")
_SPACES = "Replace it by a single U+0020: a network cannot tell spaces apart."

RULES: tuple[Rule, ...] = (
    Rule(
        "outer_space",
        "begin or end with a space",
        "Remove it: an image does not show it.",
        _any(" "),
        re.compile("^ | $").search,
    ),
    Rule("double_space", "have two spaces in a row", _SPACES, _any(" "), re.compile("  ").search),
    Rule("full_width_space", "have a full-width space (U+3000)", _SPACES, _any("\u3000")),
    Rule(
        "unusual_space",
        "have a tab, a no-break space or another unusual space",
        _SPACES,
        _any(r"\t\xa0\u1680\u2000-\u200a\u202f\u205f"),
    ),
    Rule(
        "full_width",
        "have full-width letters or digits, which the data have in half width, too",
        "Write one form unless the images show both.",
        _any("０-９Ａ-Ｚａ-ｚ"),
        data=_has_both_widths,
    ),
    Rule(
        "decomposed",
        "are not in NFC: a letter and its accent are two characters",
        "Convert the labels to NFC (`unicodedata.normalize` in Python).",
        # marks, and parts of Korean syllables
        lambda character: unicodedata.category(character)[0] == "M" or "\u1161" <= character <= "\u11ff",
        _is_decomposed,
    ),
    Rule(
        "twin_character",
        "have a character that looks like a usual one, such as the ligature ﬁ or Å (U+212B)",
        "Convert the labels to NFKC if the difference is not intended.",
        _has_twin,
        level="note",
    ),
    Rule(
        "invisible",
        "have an invisible character: zero width, a byte order mark, a direction mark or a control character",
        "Remove it.",
        _any(rf"{_INVISIBLE}\u200b-\u200d"),
        re.compile(rf"[{_INVISIBLE}]|(?<![{_JOINED}])[\u200c\u200d]|(?<![{_UNSPACED}])\u200b").search,
    ),
    Rule(
        "wrong_encoding",
        "look as if they were read in a wrong encoding",
        "Save the label file as UTF-8 from the program that wrote it.",
        _any("Ãâ\ufffd"),
        re.compile(r"\ufffd|Ã[\x80-\x9f\xa1-\xba\xbc-\xbf]|â\x80|â€").search,  # Ã» may end a quotation
    ),
    Rule(
        "mixed_scripts",
        "have a word that mixes look-alike letters of two scripts, such as Latin O and Cyrillic О",
        "Type these words again in one script.",
        _is_other,
        _is_mixed,
    ),
    Rule(
        "look_alike_script",
        "have Cyrillic or Greek letters, and only those that look like Latin ones, which the data have, too",
        "Use one script for all labels.",
        _is_other,
        lambda text: not _is_mixed(text),
        _only_look_alikes,
    ),
    Rule(
        "mixed_arabic",
        "have a word with both Arabic and Persian yeh or kaf, which look alike",
        "Use ي and ك in Arabic, and ی and ک in Persian and Urdu.",
        _any("يك"),
        re.compile(r"ي\w*ی|ی\w*ي|ك\w*ک|ک\w*ك").search,
        set("ښګڼۍ").isdisjoint,  # letters of Pashto, which has both yehs
    ),
    Rule(
        "presentation_forms",
        "have presentation forms of Arabic or Hebrew, which are shapes and not letters",
        "Convert the labels to NFKC, and check the order of their letters.",
        _any(r"\ufb1d-\ufd3d\ufd50-\ufdef\ufe70-\ufefc"),
    ),
    Rule(
        "reversed_hebrew",
        "have a Hebrew word that begins with a final letter (ךםןףץ): their order seems reversed",
        "Store all labels in the same order.",
        _any("ךםןףץ"),
        re.compile(rf"(?<![א-ת{_NIQQUD}\"'״׳])[ךםןףץ][{_NIQQUD}]*[א-ת]").search,
    ),
    Rule(
        "reversed_arabic",
        "have an Arabic word that begins with a final letter (ة or ى): their order seems reversed",
        "Store all labels in the same order.",
        _any("ةى"),
        re.compile(rf"(?<![{_ARABIC}{_HARAKAT}])[ةى][{_HARAKAT}]*[{_ARABIC}]").search,
        set("ۇۆۋ").isdisjoint,  # letters of Uyghur and Kazakh, in which ى begins words
    ),
    Rule(
        "illegible",
        "look like marks for illegible text",
        "Remove these lines: the images do not show this text.",
        _any("#*?bBkK"),  # each of the words below has a b or a k
        re.compile(
            r"#{2,}|\*+|\?{2,}|illegible|unreadable|[\[(<](illegible|unreadable|unknown|unk|blank)[\])>]",
            re.I,
        ).fullmatch,
    ),
    Rule(
        "other_text",
        "name an image that stands on an earlier line with another text",
        "Keep the line with the right text.",
        _never,
    ),
    Rule(
        "repeated_line",
        "repeat the image and the text of an earlier line",
        "Remove the repetitions if they are not intended.",
        _never,
        level="note",
    ),
    Rule(
        "group_in_splits",
        "are of a page or group that another split has, too",
        "Move all samples of a group to one split, or let `--split` do it.",
        _never,
    ),
)


@dataclass(frozen=True)
class TextReport:
    """What the labels of a data set are like.

    Attributes:
        samples: how many there are.
        single: labels of one character.
        lengths: 5, 50 and 95 % of the characters of a label.
        longest: characters of the longest label, and its place.
        characters: each with its count, the most frequent first.
        rarest: character, count, and the place of its first occurrence.
        findings: doubtful labels, in the order of ``RULES``.
        order: in which words of right-to-left scripts are stored, ``"logical"`` or ``"visual"``; empty if they do not
            show it, or there are none.
    """

    samples: int
    single: int
    lengths: Spread
    longest: tuple[int, str]
    characters: dict[str, int]
    rarest: tuple[tuple[str, int, str], ...]
    findings: tuple[Finding, ...]
    order: str = ""


class TextSurvey:
    """Look at labels one by one; memory grows with the distinct characters, not with the labels.

    Of the first 200,000 images the texts are compared with those of later lines.

    Attributes:
        lengths: labels by their characters.
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
                doubts = [*(rule.character(character) for rule in RULES), is_right_to_left(character)]
                self._doubts[character] = sum(bool(each) << at for at, each in enumerate(doubts))
        return set(map(self._doubts.__getitem__, sample.text))

    def _check(self, sample: Sample, doubts: set[int]) -> None:
        """Count a label by the rules whose characters it has."""
        bits = reduce(or_, doubts, 0)
        if bits >> len(RULES):
            self._orders.update(order_votes(sample.text))
        for at, rule in enumerate(RULES):
            if bits >> at & 1 and rule.label(sample.text):
                self._tally.add(rule.code, sample.place, sample.text)

    def _compare(self, sample: Sample) -> None:
        """Compare a sample with earlier ones of the same image, and of the same group."""
        image, text = hash((sample.image, sample.box)), hash(sample.text)
        earlier = self._texts.get(image)
        if earlier is not None:
            self._tally.add("repeated_line" if earlier == text else "other_text", sample.place, sample.text)
        elif len(self._texts) < _REMEMBERED:
            self._texts[image] = text
        if sample.group and sample.split:
            first = self._splits.get(sample.group, sample.split)
            if first != sample.split:
                self._tally.add("group_in_splits", sample.place, sample.text)
            elif len(self._splits) < _REMEMBERED:
                self._splits[sample.group] = first

    def report(self) -> TextReport:
        """Return the result for the samples so far."""
        counts = self._characters
        total = self.lengths.total()
        rarest = sorted(counts, key=counts.__getitem__)[:10]
        order = order_of(self._orders)
        rules = (
            (rule.code, rule.level, f"labels {rule.what}", rule.fix)
            for rule in RULES
            if rule.data(counts) and not (order == VISUAL and rule.code in _REVERSED)  # all are stored so
        )
        findings = self._tally.findings(rules, total)
        if total > 1 and len(self._distinct) == 1:
            examples = ((self._longest[1], shown(min(self._distinct))),)
            what = f"all {total:,} labels are the same text"
            fix = "A network learns nothing from one text: give the texts of the images."
            findings += (Finding("one_text", "warning", total, 1.0, examples, what, fix),)
        return TextReport(
            samples=total,
            single=self.lengths[1],
            lengths=spread_of(self.lengths.elements()),
            longest=self._longest,
            characters=dict(counts.most_common()),
            rarest=tuple((each, counts[each], self._first[each]) for each in rarest),
            findings=findings,
            order=order,
        )


def likely_wrong(losses: Sequence[float], lengths: Sequence[int]) -> Any:
    """Return the samples in the order in which their labels are probably wrong: int [samples].

    A right label of L characters has a loss of about L times what a character usually costs, give or take the square
    root of L; a wrong character adds as much to a long label as to a short one. So the order is by the loss above
    the usual one, divided by the square root of L: the loss itself would put long labels first, the loss of a
    character short ones.

    Args:
        losses: CTC loss of each sample, not divided by its length. Infinite ones, of labels with too few frames,
            come first; NaN comes last.
        lengths: characters of each label.
    """
    import numpy as np

    loss = np.asarray(losses, np.float64)
    length = np.maximum(np.asarray(lengths, np.float64), 1)
    usual = np.median((loss / length)[np.isfinite(loss)]) if np.isfinite(loss).any() else 0.0
    excess = (loss - usual * length) / np.sqrt(length)
    return np.argsort(-np.nan_to_num(excess, nan=-np.inf, posinf=np.inf), kind="stable")
