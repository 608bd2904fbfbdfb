"""Predictions, and the files that ``eval --save-predictions`` writes. Imports no Paddle."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.limits import read_text
from ppocr_ext.messages import printable, unprintable

# also with apostrophes before it, so that reading takes away the one that was added
_FORMULA = re.compile(r"'*(?:[=@].|[+-].*[^\W\d_])", re.DOTALL)
_LIKE_A_CONTROL = re.compile(r"\\(?=u[0-9a-f]{4})")  # a text that has such a backslash itself
HEADER = ["image", "label", "prediction", "confidence"]


@dataclass(frozen=True)
class Prediction:
    """The text that was read from one image.

    Attributes:
        image: path as in the label file, ``folder#12`` for a sample of an LMDB, empty if unknown.
        label: the true text.
        text: the predicted text.
        confidence: mean probability of the predicted characters, 0 if there are none.
    """

    image: str
    label: str
    text: str
    confidence: float

    @property
    def correct(self) -> bool:
        """True if the text equals the label; spaces count."""
        return self.label == self.text


def to_tsv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows separated by tabs; a cell that contains a tab or a quotation mark is quoted.

    Control characters are written as ``\\u001b``, and a backslash that begins such a text as ``\\u005c``. A text that a
    spreadsheet would take for a formula (``=…``, ``@…``, ``+`` or ``-`` before a word) gets an apostrophe in front.
    :func:`read_predictions` undoes all three.
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
    """Read a predictions file.

    Raises:
        DataError: it cannot be read, is empty, or was not written by ``eval --save-predictions``.
    """
    path = Path(path)
    fix = f"Fix: write it by `ppocr-ext eval … --save-predictions {shlex.quote(path.name)}`"
    try:
        rows = list(csv.reader(io.StringIO(read_text(path), newline=""), delimiter="\t"))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}). {fix}", code="unreadable_file") from error
    if not rows or rows[0] != HEADER:
        raise DataError(
            f"{path}:1: the first line is not {' '.join(HEADER)}, separated by tabs. {fix}",
            code="bad_content",
        )
    predictions = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            image, label, text, confidence = map(_from_cell, row)
            predictions.append(Prediction(image, label, text, float(confidence)))
        except ValueError as error:
            raise DataError(
                f"{path}:{line}: not a prediction (found {row!r}). {fix}", code="bad_content"
            ) from error
    if not predictions:
        raise DataError(f"{path} contains no predictions. {fix}", code="empty_file")
    return predictions


def check_same_samples(before: list[Prediction], after: list[Prediction], names: tuple[str, str]) -> None:
    """Check that two files have predictions for the same samples in the same order.

    Raises:
        DataError: they differ.
    """
    fix = "Fix: evaluate both on the same label file"
    if len(before) != len(after):
        raise DataError(
            f"{names[0]} has {len(before):,} samples and {names[1]} {len(after):,}. {fix}",
            code="different_samples",
        )
    for line, (old, new) in enumerate(zip(before, after, strict=True), start=2):
        if (old.image, old.label) != (new.image, new.label):
            raise DataError(
                f"{names[0]}:{line} is {old.image} {old.label!r}, but {names[1]}:{line} is {new.image} {new.label!r}. "
                f"{fix}",
                code="different_samples",
            )
