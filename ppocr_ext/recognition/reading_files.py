"""Write the readings of listed images: as TSV, JSON lines, label file, sheet or summary; imports no Paddle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from rapidfuzz.distance import Levenshtein

from ppocr_ext.evaluation.predictions import HEADER, to_tsv
from ppocr_ext.io.image_pixels import TALL
from ppocr_ext.io.resources import package_folder
from ppocr_ext.messages import printable, shortened
from ppocr_ext.recognition.ctc_text import Reading
from ppocr_ext.recognition.images import ListedImage, read_image
from ppocr_ext.synth.contact_sheet import Caption, Font, Picture, contact_sheet
from ppocr_ext.synth.lines.fonts import PACKAGES, FontFile, drawable, find_fonts, system_fonts

Form = Literal["tsv", "jsonl", "labels"]


@dataclass(frozen=True)
class ReadImage:
    """An image and its reading; ``is_right`` says if the text equals the label."""

    image: ListedImage
    reading: Reading
    is_right: Callable[[str, str], bool] = str.__eq__

    @property
    def wrong(self) -> bool:
        """True if the label is known and the text differs from it."""
        return self.image.label is not None and not self.is_right(self.reading.text, self.image.label)

    @property
    def error(self) -> float:
        """Edit distance of text and label, from 0 to 1; 0 if the label is unknown."""
        if self.image.label is None:
            return 0.0
        return Levenshtein.normalized_distance(self.reading.text, self.image.label)


def worst_first(read: Iterable[ReadImage]) -> list[ReadImage]:
    """Return the wrong readings, the largest error first, then the others; of equal ones, the least confident first."""
    return sorted(read, key=lambda each: (not each.wrong, -each.error, each.reading.confidence))


@dataclass(frozen=True)
class RowForm:
    """The format of the line for an image.

    Attributes:
        form: ``"tsv"``, ``"jsonl"``, or ``"labels"``, whose texts are the readings.
        labels: write the label too. The TSV then equals that of ``eval --save-predictions``.
        characters: write confidence and columns of each character too.
        least: the lowest confidence of a reading that serves as a label.
        folder: the folder that the paths of a label file start from.
    """

    form: Form
    labels: bool
    characters: bool
    least: float = 0.0
    folder: Path = Path()

    def header(self) -> str:
        """Return the first line of a TSV; empty for others."""
        if self.form != "tsv":
            return ""
        names = [name for name in HEADER if self.labels or name != "label"]
        return to_tsv([[*names, *(("confidences", "columns") if self.characters else ())]])

    def line(self, read: ReadImage) -> str:
        """Return the line for an image; empty in a TSV if it cannot be read, in a label file if it is not sure."""
        reading, label = read.reading, read.image.label
        if self.form == "labels":
            name = os.path.relpath(str(read.image.place), self.folder)
            return f"{name}\t{reading.text}\n" if self.serves(read) else ""
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

    def serves(self, read: ReadImage) -> bool:
        """Return whether a reading is sure enough to serve as a label."""
        return bool(read.reading.text) and read.reading.confidence >= self.least


def summary(read: Sequence[ReadImage], bad_lines: Sequence[str], seconds: float, engine: str) -> str:
    """Return how many images were read, how fast, and how many correctly if labels are known."""
    good = [each for each in read if each.reading.error is None]
    unreadable = len(read) - len(good) + len(bad_lines)
    speed = f"{len(good) / seconds:.0f} images/s with the engine {engine}" if seconds > 0 else engine
    lines = [f"read: {len(good):,} image{'s' * (len(good) != 1)}, {unreadable:,} unreadable; {speed}"]
    labelled = [each for each in good if each.image.label is not None]
    if labelled:
        right = sum(not each.wrong for each in labelled)
        counted = sum(each.reading.text == each.image.label for each in labelled)
        others = f"; {counted:,} if spaces count, which Metric of this run ignores" * (right > counted)
        lines.append(f"correct: {right:,} of {len(labelled):,} ({right / len(labelled):.1%}){others}")
    tall = [each for each in good if each.reading.tall and len(each.image.label or "???") > 2]
    if tall:
        lines.append(
            f"{len(tall):,} images are at least {TALL} times as high as wide, such as {tall[0].image.name}: clients "
            f"turn such crops before they read them. Fix: turn them, or train with `Global.turn_tall_images: true`"
        )
    return "\n".join(lines)


_MAX_HEIGHT = 96  # pixels of an image on the sheet; higher images are shrunk
_RIGHT, _WRONG, _LABEL = "black", "#c00000", "#006000"


def reading_sheet(read: Sequence[ReadImage], fonts: Sequence[str] = ()) -> tuple[bytes, str]:
    """Return a PNG of the images in rows, and a note about characters that no font draws (may be empty).

    Under each image stand the text and its confidence; wrong texts are red, with the label under them.

    Args:
        read: the images, at least one.
        fonts: files, folders or packages, see :func:`ppocr_ext.synth.lines.fonts.find_fonts`; none: the fonts of
            installed packages, then those of the system.

    Raises:
        DataError: a font cannot be used.
    """
    texts = [text for each in read for text in (each.reading.text, each.image.label or "")]
    choice = _FontChoice(texts, fonts)
    return contact_sheet([_picture(each, choice) for each in read]), choice.note()


def _picture(read: ReadImage, choice: _FontChoice) -> Picture:
    image, reading = _shrunk(read_image(read.image.source())), read.reading
    captions = [
        Caption(
            f"{reading.text or '(nothing)'}  {reading.confidence:.2f}",
            choice.font(reading.text),
            _WRONG if read.wrong else _RIGHT,
        )
    ]
    if read.wrong:
        label = read.image.label or ""
        captions.append(Caption(f"label: {label}", choice.font(label), _LABEL))
    return Picture(image, tuple(captions))


def _shrunk(image: np.ndarray) -> np.ndarray:
    """Return ``image``, shrunk if it is high."""
    height, width = image.shape[:2]
    if height <= _MAX_HEIGHT:
        return image
    return cv2.resize(
        image, (max(1, round(width * _MAX_HEIGHT / height)), _MAX_HEIGHT), interpolation=cv2.INTER_AREA
    )


class _FontChoice:
    """Choose the font of each text: the first one that draws all its characters, or the first one if none does."""

    def __init__(self, texts: Sequence[str], places: Sequence[str]) -> None:
        installed = places or any(package_folder(name) for name in PACKAGES)
        self._missing = set("".join(texts)) - {" "}
        self._drawn: list[tuple[FontFile, frozenset[str]]] = []
        characters = sorted(self._missing)
        # The regular face of a family has the shortest name.
        named = sorted(find_fonts(places), key=lambda font: len(font.name)) if installed else []
        # Fonts of the system are searched last, for the characters that the others do not draw.
        for font in chain(named, () if places else system_fonts(self._missing)):
            drawn = drawable(font, characters)
            if not self._drawn or self._missing & drawn:
                self._drawn.append((font, drawn))
            self._missing -= drawn
            if not self._missing:  # opening a font takes longer than drawing the sheet
                break

    def font(self, text: str) -> Font | None:
        """Return the font; None for Pillow's own, which draws Latin letters."""
        characters = set(text) - {" "}
        fonts = [font for font, drawn in self._drawn if characters <= drawn] or [f for f, _ in self._drawn]
        return (fonts[0].path, fonts[0].index) if fonts else None

    def note(self) -> str:
        """Return a sentence about the characters that no font draws; empty without such characters."""
        if not self._missing or not self._drawn:
            return ""
        named = [f"{character!r} (U+{ord(character):04X})" for character in sorted(self._missing)]
        return (
            f"no font draws {shortened(named, 5)}. Fix: name a font that does: --fonts FILE, or `pip install mplfonts` "
            f"(Chinese)."
        )
