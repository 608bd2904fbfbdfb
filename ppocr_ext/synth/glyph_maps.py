"""Characters as a recogniser would see them: small pictures of their strokes, one set a font. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from ppocr_ext.errors import DataError
from ppocr_ext.synth.lines.coverage import FontCoverage
from ppocr_ext.synth.lines.fonts import FontFile

GRID = 32  # rows and columns of a map; the em has 21 of them, about what a line 48 pixels high leaves after a stem
_EM = 64  # pixels at which glyphs are drawn
_CANVAS = 96  # pixels: an em and a half
_BASELINE = 70
_BORDER = 4  # rows and columns without ink on each side of a filled map
# of the two Gaussians whose difference leaves the strokes and takes their weight away, in cells
_FINE, _COARSE = 0.7, 3.0


@dataclass(frozen=True)
class GlyphMaps:
    """The characters that one font draws, as they stand in a line and each by itself.

    Attributes:
        font: the font.
        drawn: bool [C], which characters the font draws; the rows of the others are 0.
        placed: int8 [C, GRID · GRID], at their size and on the baseline, the ink in the middle from left to right.
        filled: int8 [C, GRID · GRID], stretched until the ink fills the map, whatever its height and width.
        height: float32 [C], of the ink, in em.
        width: float32 [C], likewise.
        middle: float32 [C], how far the middle of the ink lies above the baseline, in em.
    """

    font: FontFile
    drawn: np.ndarray
    placed: np.ndarray
    filled: np.ndarray
    height: np.ndarray
    width: np.ndarray
    middle: np.ndarray


def draw_maps(fonts: Sequence[FontFile], characters: Sequence[str]) -> list[GlyphMaps]:
    """Maps of all fonts that draw at least two of the characters.

    Args:
        fonts: at least one.
        characters: single visible ones, at least two.

    Raises:
        DataError: no font draws two of them.
    """
    coverage = FontCoverage(fonts, characters)
    used = [
        (font, drawn) for font, drawn in zip(coverage.fonts, coverage.drawn, strict=True) if len(drawn) > 1
    ]
    if not used:
        names = ", ".join(font.name for font in coverage.fonts[:5])
        raise DataError(
            f"Not one of the fonts ({names}{', …' if len(coverage.fonts) > 5 else ''}) draws two of the "
            f"{len(characters):,} characters. Name fonts of their script; `pip install mplfonts` brings Chinese ones."
        )
    total = sum(len(drawn) for _, drawn in used)
    with tqdm(total=total, desc="drawing", unit="glyph", leave=False, disable=None, delay=1) as bar:
        return [_draw_font(font, characters, drawn, bar) for font, drawn in used]


def _draw_font(font: FontFile, characters: Sequence[str], drawn: frozenset[str], bar: tqdm) -> GlyphMaps:
    face = ImageFont.truetype(font.path, _EM, index=font.index, layout_engine=ImageFont.Layout.BASIC)
    count = len(characters)
    maps = np.zeros((2, count, GRID * GRID), np.int8)
    measures = np.ones((3, count), np.float32)
    is_drawn = np.zeros(count, bool)
    for number, character in enumerate(characters):
        if character not in drawn:
            continue
        picture = _picture(character, face)
        bar.update()
        if not picture.any():  # what lies beyond the canvas has no look to compare
            continue
        is_drawn[number] = True
        rows, columns = np.flatnonzero(picture.any(axis=1)), np.flatnonzero(picture.any(axis=0))
        ink = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        maps[0, number] = _strokes(cv2.resize(picture, (GRID, GRID), interpolation=cv2.INTER_AREA))
        maps[1, number] = _strokes(_filled(ink))
        measures[:, number] = *ink.shape, _BASELINE - (rows[0] + rows[-1]) / 2
    return GlyphMaps(font, is_drawn, *maps, *(measures / _EM))


def _picture(character: str, face: ImageFont.FreeTypeFont) -> np.ndarray:
    """uint8 [_CANVAS, _CANVAS], 255 where there is ink."""
    left, top, right, bottom = face.getbbox(character, anchor="ls")
    down = min(max(_BASELINE, -top), _CANVAS - bottom)  # what would reach beyond is moved in
    image = Image.new("L", (_CANVAS, _CANVAS))
    draw = ImageDraw.Draw(image)
    draw.text((_CANVAS // 2 - (left + right) / 2, down), character, fill=255, font=face, anchor="ls")
    return np.asarray(image)


def _filled(ink: np.ndarray) -> np.ndarray:
    """uint8 [GRID, GRID], the ink (uint8 [h, w]) stretched over it, but for a border."""
    side = GRID - 2 * _BORDER
    return np.pad(cv2.resize(ink, (side, side), interpolation=cv2.INTER_AREA), _BORDER)


def _strokes(plane: np.ndarray) -> np.ndarray:
    """int8 [GRID · GRID]: a difference of Gaussians, largest value 127."""
    exact = plane.astype(np.float32)
    difference = cv2.GaussianBlur(exact, (0, 0), _FINE) - cv2.GaussianBlur(exact, (0, 0), _COARSE)
    flat = (difference - difference.mean()).ravel()
    return np.round(flat * (127.0 / np.abs(flat).max())).astype(np.int8)
