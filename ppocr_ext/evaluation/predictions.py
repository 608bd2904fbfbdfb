"""Predictions, the files of ``eval --save-predictions``, and the confusions in them; imports no Paddle."""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal

from rapidfuzz.distance import Levenshtein

from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.uncertainty import Rate
from ppocr_ext.io.atomic import write_text
from ppocr_ext.limits import read_text
from ppocr_ext.messages import printable, unprintable
from ppocr_ext.sources.names import page_of_crop

# Apostrophes may precede it, so that reading removes exactly the one that was added.
_FORMULA = re.compile(r"'*(?:[=@].|[+-].*[^\W\d_])", re.DOTALL)
_LIKE_A_CONTROL = re.compile(r"\\(?=u[0-9a-f]{4})")  # a backslash that reading would take for an escape
HEADER = ["image", "label", "prediction", "confidence"]
GROUP = "group"


@dataclass(frozen=True)
class Prediction:
    """The text that was read from one image.

    Attributes:
        image: path as in the label file, ``folder#12`` for a sample of an LMDB, empty if unknown.
        label: the true text.
        text: the predicted text.
        confidence: mean probability of the predicted characters, 0 if there are none.
        group: the page, or what else the image was cut from; empty if unknown.
    """

    image: str
    label: str
    text: str
    confidence: float
    group: str = ""

    @property
    def correct(self) -> bool:
        """True if the text equals the label; spaces count."""
        return self.label == self.text


def to_tsv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows separated by tabs; a cell that contains a tab or a quotation mark is quoted.

    Control characters are written as ``\\u001b``, and a backslash that looks like the start of such an escape as
    ``\\u005c``. A text that a spreadsheet would take for a formula (``=…``, ``@…``, ``+`` or ``-`` before a word) gets
    an apostrophe in front. :func:`read_predictions` undoes all three.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n")
    writer.writerows([_to_cell(value) if isinstance(value, str) else value for value in row] for row in rows)
    return buffer.getvalue()


def _to_cell(text: str) -> str:
    cell = printable(_LIKE_A_CONTROL.sub(r"\\u005c", text))
    return f"'{cell}" if _FORMULA.match(cell) else cell


def _from_cell(cell: str) -> str:
    return unprintable(cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell)


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write a TSV file with a header: image, label, prediction, confidence."""
    rows = ([*astuple(prediction)[:3], f"{prediction.confidence:.4f}"] for prediction in predictions)
    write_text(path, to_tsv([HEADER, *rows]))


def read_predictions(path: str | Path) -> list[Prediction]:
    """Read a predictions file. A column ``group`` after the others is optional.

    PPOCRLabel's names of crops, such as ``page_crop_3.jpg``, give the group otherwise.

    Raises:
        DataError: it cannot be read, is empty, or was not written by ``eval --save-predictions``.
    """
    path = Path(path)
    fix = f"Fix: write it by `ppocr-ext eval … --save-predictions {shlex.quote(path.name)}`"
    try:
        rows = list(csv.reader(io.StringIO(read_text(path), newline=""), delimiter="\t"))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}). {fix}", code="unreadable_file") from error
    if not rows or rows[0][: len(HEADER)] != HEADER:  # `predict --characters` adds columns
        raise DataError(
            f"{path}:1: the first line is not {' '.join(HEADER)}, separated by tabs. {fix}",
            code="bad_content",
        )
    predictions = []
    group = rows[0].index(GROUP) if GROUP in rows[0] else None
    for line, row in enumerate(rows[1:], start=2):
        try:
            if len(row) != len(rows[0]):
                raise ValueError("another number of columns")
            image, label, text, confidence = map(_from_cell, row[: len(HEADER)])
            page = page_of_crop(image) if group is None else _from_cell(row[group])
            predictions.append(Prediction(image, label, text, float(confidence), page))
        except ValueError as error:
            raise DataError(
                f"{path}:{line}: not a prediction (found {row!r}). {fix}", code="bad_content"
            ) from error
    if not predictions:
        raise DataError(f"{path} contains no predictions. {fix}", code="empty_file")
    return predictions


def pages_of(predictions: Sequence[Prediction]) -> list[str]:
    """Return the group of each prediction, or a name of its own; an empty list if no group is known."""
    known = any(each.group for each in predictions)
    return [each.group or f"\n{number}" for number, each in enumerate(predictions)] if known else []


def samples_of_both(
    before: Sequence[Prediction], after: Sequence[Prediction], names: tuple[str, str]
) -> tuple[list[Prediction], list[Prediction], str]:
    """Return the predictions of the samples that two files have in common, both in the order of ``after``, and a note.

    Samples are the same if image and label are; those that are equal in both are taken in their order. The note says
    how many are left out; it is empty if none is.

    Raises:
        DataError: they have none in common.
    """
    earlier: dict[tuple[str, str], list[Prediction]] = {}
    for each in reversed(before):
        earlier.setdefault((each.image, each.label), []).append(each)
    found = [(same.pop(), each) for each in after if (same := earlier.get((each.image, each.label)))]
    if not found:
        raise DataError(
            f"{names[0]} and {names[1]} have no image with the same label in common (the first are "
            f"{before[0].image} {before[0].label!r} and {after[0].image} {after[0].label!r}). Fix: evaluate both on "
            f"one label file",
            code="different_samples",
        )
    left_out = [
        f"{len(part) - len(found):,} only in {name}"
        for part, name in zip((before, after), names, strict=True)
        if len(part) > len(found)
    ]
    note = (
        f"left out: {', '.join(left_out)}; {len(found):,} samples are in both (image and label)"
        if left_out
        else ""
    )
    return [old for old, _ in found], [new for _, new in found], note


NOTHING = ""  # the other side of an insertion or a deletion
_EXAMPLES = 8  # samples kept for each pair
EditKind = Literal["substitutions", "deletions", "insertions"]


def kind_of_edit(pair: tuple[str, str]) -> EditKind:
    """Return the kind of a (character, predicted character)."""
    return "insertions" if pair[0] == NOTHING else "deletions" if pair[1] == NOTHING else "substitutions"


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
        pairs: count of each (character, predicted character), of which one is empty for a deletion or an insertion.
        examples: indices of the first samples with each pair.
    """

    characters: dict[str, CharacterScore]
    pairs: Counter[tuple[str, str]]
    examples: dict[tuple[str, str], list[int]]

    def ranked(self, kind: EditKind) -> list[tuple[str, str, int]]:
        """Return (character, predicted, count), the most frequent first; ties in the order of the characters."""
        pairs = [(*pair, count) for pair, count in self.pairs.items() if kind_of_edit(pair) == kind]
        return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))


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


def count_confusions(samples: Iterable[tuple[str, str]]) -> ConfusionCounts:
    """Count the confusions of samples, (label, prediction) of each."""
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
            if len(indices) < _EXAMPLES and index not in indices[-1:]:
                indices.append(index)
    scores = {c: CharacterScore(count[c], predicted[c], correct[c]) for c in sorted({*count, *predicted})}
    return ConfusionCounts(scores, pairs, kept)


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
    """Return for each group how many of its characters were confused within it. A character counts in each group.

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
    """Yield each character of the labels that is in a group, and whether it was confused, by group."""
    groups_of: dict[str, list[str]] = {}
    for group in dict.fromkeys(groups):
        for character in dict.fromkeys(group):
            groups_of.setdefault(character, []).append(group)
    for label, prediction in samples:
        for character, read in align(label, prediction):
            if character in groups_of:
                wrong = read not in (NOTHING, character)
                yield character, {group: wrong and read in group for group in groups_of[character]}
