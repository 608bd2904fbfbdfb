"""Write what was read from listed images: TSV or JSON lines, the worst first, and how many are right; no Paddle."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rapidfuzz.distance import Levenshtein

from ppocr_ext.evaluation.predictions import HEADER, to_tsv
from ppocr_ext.messages import printable
from ppocr_ext.recognition.ctc_text import Reading
from ppocr_ext.recognition.image_lists import ListedImage

Form = Literal["tsv", "jsonl"]


@dataclass(frozen=True)
class ReadImage:
    """An image and what was read from it."""

    image: ListedImage
    reading: Reading

    @property
    def wrong(self) -> bool:
        """True if the label is known and another text was read; spaces count."""
        return self.image.label is not None and self.reading.text != self.image.label

    @property
    def error(self) -> float:
        """Edit distance of text and label, from 0 to 1; 0 if the label is not known."""
        if self.image.label is None:
            return 0.0
        return Levenshtein.normalized_distance(self.reading.text, self.image.label)


def worst_first(read: Iterable[ReadImage]) -> list[ReadImage]:
    """Return the wrong ones by their error, then the others; of equals the one of least confidence comes first."""
    return sorted(read, key=lambda each: (not each.wrong, -each.error, each.reading.confidence))


@dataclass(frozen=True)
class RowForm:
    """How an image becomes a line.

    Attributes:
        form: ``"tsv"`` or ``"jsonl"``.
        labels: with the label; the TSV is then the one that ``eval --save-predictions`` writes.
        characters: with confidence and columns of each character.
    """

    form: Form
    labels: bool
    characters: bool

    def header(self) -> str:
        """Return the first line of a TSV; empty for JSON lines."""
        if self.form == "jsonl":
            return ""
        names = [name for name in HEADER if self.labels or name != "label"]
        return to_tsv([[*names, *(("confidences", "columns") if self.characters else ())]])

    def line(self, read: ReadImage) -> str:
        """Return the line of an image. A TSV has none for an image that cannot be read."""
        reading, label = read.reading, read.image.label
        if self.form == "jsonl":
            content = reading.to_json(self.characters) | {"image": read.image.name}
            if self.labels and label is not None:
                content["label"] = label
            return printable(json.dumps(content, ensure_ascii=False)) + "\n"
        if reading.error is not None:
            return ""
        row: list[Any] = [read.image.name, *([label or ""] if self.labels else [])]
        row += [reading.text, f"{reading.confidence:.4f}"]
        if self.characters:
            row.append(" ".join(f"{each.confidence:.4f}" for each in reading.characters))
            known = [each for each in reading.characters if each.first_column is not None]
            row.append(" ".join(f"{each.first_column}-{each.last_column}" for each in known))
        return to_tsv([row])


def summary(read: Sequence[ReadImage], bad_lines: Sequence[str], seconds: float, engine: str) -> str:
    """Return how many images were read, how fast, and how many are right if labels are known."""
    good = [each for each in read if each.reading.error is None]
    unreadable = len(read) - len(good) + len(bad_lines)
    speed = f"{len(good) / seconds:.0f} images/s with the engine {engine}" if seconds > 0 else engine
    lines = [f"read: {len(good):,} image{'s' * (len(good) != 1)}, {unreadable:,} unreadable; {speed}"]
    labelled = [each for each in good if each.image.label is not None]
    if labelled:
        right = sum(not each.wrong for each in labelled)
        lines.append(f"correct: {right:,} of {len(labelled):,} ({right / len(labelled):.1%}); spaces count")
    return "\n".join(lines)
