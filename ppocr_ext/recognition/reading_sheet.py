"""Draw a sheet of images with what was read under each of them, wrong ones in red; no Paddle."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from ppocr_ext.messages import shortened
from ppocr_ext.recognition.images import read_image
from ppocr_ext.recognition.reading_files import ReadImage
from ppocr_ext.synth.contact_sheet import Caption, Font, Picture, contact_sheet
from ppocr_ext.synth.lines.fonts import PACKAGES, FontFile, drawable, find_fonts, package_folder

_HEIGHT = 96  # pixels, beyond which an image is shown smaller
_RIGHT, _WRONG, _LABEL = "black", "#c00000", "#006000"


def reading_sheet(read: Sequence[ReadImage], fonts: Sequence[str] = ()) -> tuple[bytes, str]:
    """Return a PNG of the images in rows, and a note about characters that no font draws (empty if there are none).

    Under each image: the text and its confidence; under one that was read wrongly, in red, the label too.

    Args:
        read: images that were read, at least one.
        fonts: files, folders or packages, see :func:`ppocr_ext.synth.lines.fonts.find_fonts`; none: those of the
            packages that are installed.

    Raises:
        DataError: a font cannot be used.
    """
    texts = [text for each in read for text in (each.reading.text, each.image.label or "")]
    choice = _FontChoice(texts, fonts)
    return contact_sheet([_picture(each, choice) for each in read]), choice.note()


def _picture(read: ReadImage, choice: _FontChoice) -> Picture:
    image, reading = _shown(read_image(read.image.source())), read.reading
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


def _shown(image: np.ndarray) -> np.ndarray:
    """Return ``image``, smaller if it is high."""
    height, width = image.shape[:2]
    if height <= _HEIGHT:
        return image
    return cv2.resize(image, (max(1, round(width * _HEIGHT / height)), _HEIGHT), interpolation=cv2.INTER_AREA)


class _FontChoice:
    """Choose the font of each text: the first that draws all of its characters, else the first of all."""

    def __init__(self, texts: Sequence[str], places: Sequence[str]) -> None:
        installed = places or any(package_folder(name) for name in PACKAGES)
        self._missing = set("".join(texts)) - {" "}
        self._drawn: list[tuple[FontFile, frozenset[str]]] = []
        wanted = sorted(self._missing)
        # the regular face of a family has the shortest name
        for font in sorted(find_fonts(places), key=lambda font: len(font.name)) if installed else ():
            drawn = drawable(font, wanted)
            if not self._drawn or self._missing & drawn:
                self._drawn.append((font, drawn))
            self._missing -= drawn
            if not self._missing:  # to look into a font takes longer than to draw the sheet
                break

    def font(self, text: str) -> Font | None:
        """Return the font; None for that of Pillow, which draws Latin letters."""
        characters = set(text) - {" "}
        fonts = [font for font, drawn in self._drawn if characters <= drawn] or [f for f, _ in self._drawn]
        return (fonts[0].path, fonts[0].index) if fonts else None

    def note(self) -> str:
        """Return a sentence about the characters that no font draws."""
        if not self._missing or not self._drawn:
            return ""
        named = [f"{character!r} (U+{ord(character):04X})" for character in sorted(self._missing)]
        fix = "Fix: name a font that does: --fonts FILE, or `pip install mplfonts` (Chinese)."
        return f"no font draws {shortened(named, 5)}. {fix}"
