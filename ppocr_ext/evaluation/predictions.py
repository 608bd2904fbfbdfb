"""Files of predictions, as ``eval --save-predictions`` writes them. Imports no Paddle."""

from __future__ import annotations

import csv
import shlex
from dataclasses import dataclass
from pathlib import Path

from ppocr_ext.errors import DataError

HEADER = ["image", "label", "prediction", "confidence"]


@dataclass(frozen=True)
class Read:
    """A line that was read: its image's path, the true text, the text read, and how sure it was."""

    image: str
    label: str
    text: str
    confidence: float

    @property
    def right(self) -> bool:
        """Whether it was read without an error; spaces count."""
        return self.label == self.text


def read_predictions(path: str | Path) -> list[Read]:
    """The lines of a predictions file.

    Raises:
        DataError: it cannot be read, or is not what ``eval --save-predictions`` writes.
    """
    path = Path(path)
    writer = f"`ppocr-ext eval … --save-predictions {shlex.quote(path.name)}` writes such a file."
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream, delimiter="\t"))
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise DataError(f"{path} cannot be read ({fault}). {writer}") from fault
    if not rows or rows[0] != HEADER:
        raise DataError(f"{path}: its first line is not {' '.join(HEADER)}, separated by tabs. {writer}")
    found = []
    for number, row in enumerate(rows[1:], start=2):
        try:
            image, label, text, confidence = row
            found.append(Read(image, label, text, float(confidence)))
        except ValueError as fault:
            raise DataError(f"{path}:{number}: no line of predictions: {row!r}.") from fault
    if not found:
        raise DataError(f"{path} holds no predictions.")
    return found


def pair_up(before: list[Read], after: list[Read], names: tuple[str, str]) -> None:
    """See that two files are of the same lines, in their order.

    Raises:
        DataError: they are not.
    """
    if len(before) != len(after):
        raise DataError(
            f"{names[0]} has {len(before):,} lines and {names[1]} {len(after):,}: they must be of the same."
        )
    for number, (old, new) in enumerate(zip(before, after, strict=True), start=2):
        if (old.image, old.label) != (new.image, new.label):
            raise DataError(
                f"{names[0]} and {names[1]} differ at line {number}: {old.image} {old.label!r} against {new.image} "
                f"{new.label!r}. Evaluate both on the same label file."
            )
