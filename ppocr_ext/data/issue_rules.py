"""The rules of data: each kind of issue of labels, images and whole data sets, with its message and fix; no Paddle.

``RULES`` is the only table of them. `init`, `train` before its first step, `config --check` and `make-lmdb` take it
from here; their issues come in its order.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from ppocr_ext.issues import Issue, Level

EXAMPLES = 5  # of an issue
_SHOWN = 80  # characters of an example

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


def _any(characters: str) -> Callable[[str], object]:
    """Return the function that finds one of these ``characters``, a class of a regular expression."""
    return re.compile(f"[{characters}]").search


class Rule(NamedTuple):
    """A kind of issue.

    Attributes:
        what: the message after ``3 of 24``; empty for a reason that a sample is unusable or skipped.
        fix: what to do about it. ``init`` says this, and others do if ``fixes`` has nothing for them.
        character: a function that is true for a character which each such label has; most labels are decided by it
            alone. None for a rule that is not about the text of one label.
        label: a function that is true for such a label, among those with such a character.
        data: a function that is true if the rule applies to data with these characters.
        level: the level of its issue.
        least: the share of labels or images that must have it; fewer may be mistaken.
        fixes: other fixes, by what they are for: ``"run"`` for the data of a config, ``"lmdb"`` for its LMDBs,
            ``"make_lmdb"`` for this command, ``"left_out"`` for texts that ``init`` leaves out on purpose.
    """

    what: str
    fix: str
    character: Callable[[str], object] | None = None
    label: Callable[[str], object] = bool
    data: Callable[[Collection[str]], object] = bool
    level: Level = "warning"
    least: float = 0.0
    fixes: Mapping[str, str] = MappingProxyType({})

    def fix_in(self, *who: str) -> str:
        """Return the fix of the first of ``who`` that has its own, else the usual one."""
        return next((self.fixes[each] for each in who if each in self.fixes), self.fix)


_SPACES = "Replace it by a single U+0020: a network cannot tell spaces apart."
_COPIES = "Remove one of them, or let `--split` keep copies together."
_COPY = "Remove them if they are not intended."
_TAB = 'a tab between image and label, and `delimiter: "\\t"`'

RULES: dict[str, Rule] = {
    # texts that give no sample
    "missing_image": Rule(
        "images are missing",
        "Paths are relative to the label file, its parent or the data folder, with the ending of the stored file; no "
        "link may lead out of it.",
        fixes={
            "run": "Paths are relative to `dataset.data_dir`.",
            "lmdb": "A sample has an image-%09d: make the LMDB again.",
            "make_lmdb": "Paths are relative to --data-dir.",
        },
    ),
    "no_text": Rule(
        "",
        "Write the text of these images, or remove them: a limit of confidence tells images without (docs/data.md).",
    ),
    "empty_label": Rule(
        "",
        "Lines without text cannot be trained on: a limit of confidence tells images without text (docs/data.md).",
    ),
    "bad_line": Rule("", "Correct these lines."),
    "bad_format": Rule(
        "",
        "A line is a path, `dataset.delimiter` and the label, in UTF-8.",
        fixes={
            "lmdb": "A sample has a label-%09d in UTF-8.",
            "make_lmdb": "A line is a path, --delimiter and the label, in UTF-8.",
        },
    ),
    "bad_text": Rule(
        "", "Correct these texts: they hold a tab or characters that are not valid, or are very long."
    ),
    "bad_path": Rule(
        "", "Rename these images: a path must not begin with `[`, and not hold a tab or a line end."
    ),
    "several_lines": Rule(
        "", "A sample is one line of text: cut the image, or close a quote that is open in the table."
    ),
    "bad_box": Rule(
        "",
        "Draw these boxes again: rectangles or polygons around one line of text, in pixels. Other shapes are not cut.",
    ),
    "page_size": Rule(
        "boxes do not fit the sizes of their pages",
        "Give the pages as they were when they were labelled: not resized, cut or turned since then.",
    ),
    "unnamed_text": Rule(
        "",
        "Which attribute is the text? Rename it `text` in the tool or in the label file; the others may stay.",
    ),
    "name_differs": Rule("", "The pattern for file names does not match these names."),
    "unknown_char": Rule(
        "",
        "Is `Global.character_dict_path` the dictionary of these labels? `Global.unknown_char: drop_char` keeps such "
        "samples without the character.",
        fixes={
            "left_out": "Nothing to do: --characters leaves these texts out.",
            "make_lmdb": "Is --dict the dictionary of these labels?",
        },
    ),
    "too_long": Rule("", "Raise `Global.max_text_length`.", fixes={"make_lmdb": "Raise --max-text-length."}),
    "too_short": Rule("", "Lower `Global.min_text_length`, or remove such lines."),
    "too_long_for_frames": Rule("", "Make the images wider, or remove such labels."),
    "unlabelled": Rule("images have no text", "Label them, or leave them out.", level="note"),
    # texts of samples
    "outer_space": Rule(
        "labels begin or end with a space",
        "Remove it: an image does not show it.",
        _any(" "),
        re.compile("^ | $").search,
    ),
    "double_space": Rule("labels have two spaces in a row", _SPACES, _any(" "), re.compile("  ").search),
    "full_width_space": Rule("labels have a full-width space (U+3000)", _SPACES, _any("\u3000")),
    "unusual_space": Rule(
        "labels have a tab, a no-break space or another unusual space",
        _SPACES,
        _any(r"\t\xa0\u1680\u2000-\u200a\u202f\u205f"),
    ),
    "full_width": Rule(
        "labels have full-width letters or digits, which the data have in half width, too",
        "Write one form unless the images show both.",
        _any("０-９Ａ-Ｚａ-ｚ"),
        data=_has_both_widths,
    ),
    "decomposed": Rule(
        "labels are not in NFC: a letter and its accent are two characters",
        "Convert the labels to NFC (`unicodedata.normalize` in Python).",
        # marks, and parts of Korean syllables
        lambda character: unicodedata.category(character)[0] == "M" or "\u1161" <= character <= "\u11ff",
        _is_decomposed,
    ),
    "twin_character": Rule(
        "labels have a character that looks like a usual one, such as the ligature ﬁ or Å (U+212B)",
        "Convert the labels to NFKC if the difference is not intended.",
        _has_twin,
        level="note",
    ),
    "invisible": Rule(
        "labels have an invisible character: zero width, a byte order mark, a direction mark or a control character",
        "Remove it.",
        _any(rf"{_INVISIBLE}\u200b-\u200d"),
        re.compile(rf"[{_INVISIBLE}]|(?<![{_JOINED}])[\u200c\u200d]|(?<![{_UNSPACED}])\u200b").search,
    ),
    "wrong_encoding": Rule(
        "labels look as if they were read in a wrong encoding",
        "Save the label file as UTF-8 from the program that wrote it.",
        _any("Ãâ\ufffd"),
        re.compile(r"\ufffd|Ã[\x80-\x9f\xa1-\xba\xbc-\xbf]|â\x80|â€").search,  # Ã» may end a quotation
    ),
    "mixed_scripts": Rule(
        "labels have a word that mixes look-alike letters of two scripts, such as Latin O and Cyrillic О",
        "Type these words again in one script.",
        _is_other,
        _is_mixed,
    ),
    "look_alike_script": Rule(
        "labels have Cyrillic or Greek letters, and only those that look like Latin ones, which the data have, too",
        "Use one script for all labels.",
        _is_other,
        lambda text: not _is_mixed(text),
        _only_look_alikes,
    ),
    "mixed_arabic": Rule(
        "labels have a word with both Arabic and Persian yeh or kaf, which look alike",
        "Use ي and ك in Arabic, and ی and ک in Persian and Urdu.",
        _any("يك"),
        re.compile(r"ي\w*ی|ی\w*ي|ك\w*ک|ک\w*ك").search,
        set("ښګڼۍ").isdisjoint,  # letters of Pashto, which has both yehs
    ),
    "presentation_forms": Rule(
        "labels have presentation forms of Arabic or Hebrew, which are shapes and not letters",
        "Convert the labels to NFKC, and check the order of their letters.",
        _any(r"\ufb1d-\ufd3d\ufd50-\ufdef\ufe70-\ufefc"),
    ),
    "reversed_hebrew": Rule(
        "labels have a Hebrew word that begins with a final letter (ךםןףץ): their order seems reversed",
        "Store all labels in the same order.",
        _any("ךםןףץ"),
        re.compile(rf"(?<![א-ת{_NIQQUD}\"'״׳])[ךםןףץ][{_NIQQUD}]*[א-ת]").search,
    ),
    "reversed_arabic": Rule(
        "labels have an Arabic word that begins with a final letter (ة or ى): their order seems reversed",
        "Store all labels in the same order.",
        _any("ةى"),
        re.compile(rf"(?<![{_ARABIC}{_HARAKAT}])[ةى][{_HARAKAT}]*[{_ARABIC}]").search,
        set("ۇۆۋ").isdisjoint,  # letters of Uyghur and Kazakh, in which ى begins words
    ),
    "illegible": Rule(
        "labels look like marks for illegible text",
        "Remove these lines: the images do not show this text.",
        _any("#*?bBkK"),  # each of the words below has a b or a k
        re.compile(
            r"#{2,}|\*+|\?{2,}|illegible|unreadable|[\[(<](illegible|unreadable|unknown|unk|blank)[\])>]",
            re.I,
        ).fullmatch,
        fixes={"left_out": "Nothing to do: text marked as illegible or difficult is left out."},
    ),
    "other_text": Rule(
        "labels name an image that stands on an earlier line with another text",
        "Keep the line with the right text.",
    ),
    "repeated_line": Rule(
        "labels repeat the image and the text of an earlier line",
        "Remove the repetitions if they are not intended.",
        level="note",
    ),
    "group_in_splits": Rule(
        "labels are of a page or group that another split has, too",
        "Move all samples of a group to one split, or let `--split` do it.",
    ),
    "one_text": Rule(
        "labels are the same text",
        "A network learns nothing from one text: give the texts of the images.",
        fixes={"run": "Write the text of each image in the column after its path."},
    ),
    # images of samples
    "broken_image": Rule(
        "images cannot be decoded", "Make these images again, or convert them to PNG or JPEG."
    ),
    "too_many_pixels": Rule(
        "images have too many pixels",
        "Cut the text lines out of them.",
        fixes={
            "run": "Cut the text lines out of them; `Global.max_image_pixels` is the limit.",
            "make_lmdb": "Cut the text lines out of them, or raise --max-image-pixels.",
        },
    ),
    "outside_data_dir": Rule(
        "images are outside the data folder",
        "Copy them into it.",
        fixes={
            "run": "If these paths are intended, set `Global.allow_outside_data_dir: true`.",
            "make_lmdb": "--allow-outside-data-dir allows such paths.",
        },
    ),
    "tiny_image": Rule(
        "images are too small to show a character", "Remove them, or cut the text lines out again."
    ),
    "flat_image": Rule(
        "images have hardly any contrast, so nothing can be read",
        "Look at these images: convert them to 8 bits, with the text on a background of another brightness.",
    ),
    "tall_image": Rule(
        "images are tall, but have several characters",
        "Set `Global.turn_tall_images: true` if the text is vertical, or turn these images, or remove them.",
    ),
    "two_rows": Rule(
        "images seem to have two rows of text, one above the other",
        "A network reads one row: cut the rows apart or put them side by side (docs/data.md, two rows). `init` shows "
        "such images first in look.png.",
        least=0.1,
    ),
    "other_size": Rule(
        "images have another shape than their lines say",
        "Write `path, label, width, height` on each line, in this order, or leave ds_width out.",
    ),
    "copy_with_other_text": Rule(
        "images have the same pixels as an earlier one with another text", "Keep the right text."
    ),
    "copy_in_other_split": Rule(
        "images have the same pixels as one of another split, so the accuracy will be too high", _COPIES
    ),
    "near_copy_in_other_split": Rule(
        "images are nearly the same as one of another split with the same text, so the accuracy will be too high",
        _COPIES,
    ),
    "copy": Rule("images have the same pixels and the same text as an earlier one", _COPY, level="note"),
    "near_copy": Rule("images are nearly the same as an earlier one with the same text", _COPY, level="note"),
    # the samples of a run, with its dictionary, its texts' direction and its metric
    "label_order": Rule("words are stored in another order than Global.text_direction says", ""),
    "quoted_label": Rule("labels begin with a quotation mark, as in CSV", f"Write no quotes, but {_TAB}."),
    "cut_label": Rule("labels are cut at another delimiter", f"Write {_TAB}."),
    "other_case": Rule(
        "labels lack only letters that the dictionary has in the other case",
        "Add these letters to the dictionary (`--old-dict` keeps the weights), or write the labels in its case; "
        "`unknown_char: drop_char` would cut them out of the labels.",
    ),
    "filtered_labels": Rule(
        "labels have no digit or ASCII letter, and the metric compares nothing else", "`is_filter: false`."
    ),
    "trained_samples": Rule(
        "samples have an image of Train: the accuracy says nothing about new images",
        "Evaluate on other samples.",
    ),
    "conflicting_labels": Rule(
        "samples have the image of an earlier sample, but another label", "Correct the labels."
    ),
    "repeated_samples": Rule(
        "samples have image and label of a sample in another file: they count twice",
        "Name a label file once.",
    ),
}


@dataclass
class Tally:
    """Count by code, and keep the first examples of each code.

    Attributes:
        most: how many examples are kept of a code.
        counts: how often each code was counted.
        examples: the first of each code, in their order: the code, then the place and what else was given.
    """

    most: int = EXAMPLES
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[Any, ...]] = field(default_factory=list)

    def count(self, code: str, *example: Any) -> None:
        """Count one more, with its example."""
        self.counts[code] += 1
        if self.counts[code] <= self.most:
            self.examples.append((code, *example))

    def of(self, code: str) -> list[tuple[Any, ...]]:
        """Return the examples of a code, without it."""
        return [each[1:] for each in self.examples if each[0] == code]


def issues_of(tally: Tally, total: int) -> tuple[Issue, ...]:
    """Return an issue for each code that was counted, in the order of ``RULES``; see :func:`counted_issue`."""
    return tuple(
        counted_issue(code, count, total, tally.of(code))
        for code, rule in RULES.items()
        if (count := tally.counts[code]) > rule.least * total
    )


def skipped_issues(tally: Tally, total: int) -> tuple[Issue, ...]:
    """Return an issue for each reason why texts give no sample; one for texts left out on purpose is a note."""
    return tuple(
        counted_issue(
            code,
            count,
            total,
            tally.of(code),
            what=f"texts are skipped: {code}",
            fix=rule.fix_in("left_out"),
            level="note" if "left_out" in rule.fixes else "warning",
        )
        for code, rule in RULES.items()
        if (count := tally.counts[code])
    )


def counted_issue(
    code: str,
    count: int,
    total: int,
    examples: Iterable[tuple[Any, ...]] = (),
    *,
    what: str = "",
    fix: str = "",
    of: str = "",
    level: Level | None = None,
) -> Issue:
    """Return the issue that ``count`` of ``total`` labels, images or samples have.

    Args:
        code: a key of ``RULES``.
        count: how many have it.
        total: how many were looked at.
        examples: place, and label or other detail, of the first of them.
        what: the message after ``3 of 24``, if it is not that of the rule.
        fix: the fix, if it is not that of the rule.
        of: what follows the noun, as in ``3 of 24 labels of Train``.
        level: the level, if it is not that of the rule.
    """
    rule = RULES[code]
    noun, _, rest = (what or rule.what).partition(" ")
    message = f"{count:,} of {total:,} {noun}{of and f' {of}'} {rest}"
    texts = message, fix or rule.fix
    return Issue(code, level or rule.level, "", "", *texts, count, count / total, tuple(examples))


def shown(text: str) -> str:
    """Return the start of ``text`` with characters that cannot be seen as ``\\u200b``."""
    start = text[:_SHOWN] + "…" * (len(text) > _SHOWN)
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in start)
