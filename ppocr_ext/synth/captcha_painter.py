"""A fast painter of the library ``captcha``'s pictures; no Paddle.

What the library does to a text: each character is drawn large, turned, stretched to the height of its
line and warped; the characters are pasted over one another in one colour, as opaque as that colour is
bright, which leaves hard edges; the line is squeezed to the width of the image; 30 dots and an arc are
drawn over it; all is smoothed. The library does so on RGBA images and renders each glyph anew.

Here a picture is one plane, the share of ink in each pixel, until it is coloured at the end, and glyphs
are rendered once. The random draws are the library's, in its order, so that both painters draw the same
picture from the same draws; resampling differs a little at the edges of the strokes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ppocr_ext.synth.captcha import CaptchaOptions, captcha_library, library_fonts
from ppocr_ext.synth.draws import Draws

Color = tuple[int, int, int]
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's SMOOTH filter
# From the corners of a quadrilateral (upper left, lower left, lower right, upper right) to the coefficients
# of 1, x, y, xy of the bilinear map that takes the unit square to it.
_BILINEAR = np.array([[1, 0, 0, 0], [-1, 0, 0, 1], [-1, 1, 0, 0], [1, -1, 1, -1]], np.float32)
_DOTS = 30
_MARGIN = 4  # around the image, for dots that lie partly outside


class _Glyph(NamedTuple):
    """A character in a font: its ink (uint8 [h, w], None for a space) and the box the library gives it."""

    ink: np.ndarray | None
    width: int
    height: int


class _Cell(NamedTuple):
    """A turned and warped character: where it has ink (bool [height, width], None for a space)."""

    ink: np.ndarray | None
    width: int
    height: int


class FastPainter:
    """Draws what ``captcha.image.ImageCaptcha`` draws.

    Args:
        options: size, fonts and font sizes.
    """

    def __init__(self, options: CaptchaOptions) -> None:
        self._width, self._height = options.width, options.height
        self._style: Any = captcha_library().ImageCaptcha  # its ranges of angle, warp, spacing
        self._fonts = [
            ImageFont.truetype(path, size)
            for path in (options.fonts or library_fonts())
            for size in options.font_sizes
        ]
        self._glyphs: dict[tuple[str, int], _Glyph] = {}
        self._grids: dict[tuple[int, int], np.ndarray] = {}
        self._dot = _dot_offsets(self._width + 2 * _MARGIN)

    def paint(self, text: str, draws: Draws) -> np.ndarray:
        """Draw ``text``: uint8 [height, width, 3], blue-green-red."""
        background = _color(draws, 238, 255)
        draws.randbelow(36)  # the library's opacity of the ink, which has no effect on an RGB image
        ink = _color(draws, 10, 200)
        cells: list[_Cell] = []
        for character in text:
            if _share(draws) > self._style.word_space_probability:
                cells.append(self._cell(" ", draws))
            cells.append(self._cell(character, draws))
        layers = self._set_line(cells, len(text), draws)
        plane = _ink_share(layers, ink)
        if plane.shape[1] > self._width:
            plane = np.asarray(Image.fromarray(plane).resize((self._width, self._height)))
        plane = self._noise(plane, draws)
        return _colored(_smoothed(plane), background, ink)

    def _glyph(self, character: str, font_index: int) -> _Glyph:
        key = (character, font_index)
        if key not in self._glyphs:
            self._glyphs[key] = _render(character, self._fonts[font_index])
        return self._glyphs[key]

    def _cell(self, character: str, draws: Draws) -> _Cell:
        """Turn, stretch and warp a character by random amounts."""
        style = self._style
        font_index = draws.choice(range(len(self._fonts)))
        draws.randbelow(style.character_offset_dx[1] - style.character_offset_dx[0] + 1)
        draws.randbelow(style.character_offset_dy[1] - style.character_offset_dy[0] + 1)  # cropped away again
        glyph = self._glyph(character, font_index)
        low, high = style.character_rotate
        angle = low + _share(draws) * (high - low)
        reach_x = _reach(glyph.width, style.character_warp_dx, draws)
        reach_y = _reach(glyph.height, style.character_warp_dy, draws)
        x1, y1, x2, y2 = (
            int(_share(draws) * 2 * reach - reach) for reach in (reach_x, reach_y, reach_x, reach_y)
        )
        if glyph.ink is None:
            return _Cell(None, glyph.width, glyph.height)
        wide, tall = glyph.width + abs(x1) + abs(x2), glyph.height + abs(y1) + abs(y2)
        stretched = cv2.resize(_turned(glyph.ink, angle), (wide, tall), interpolation=cv2.INTER_CUBIC)
        corners = np.array([(x1, y1), (-x1, tall - y2), (wide + x2, tall + y2), (wide - x2, -y1)], np.float32)
        warped = self._warped(stretched, corners, glyph.width, glyph.height)
        # A trace of ink counts in full: the library pastes by colour, not by opacity. One level of 255 is
        # what the overshoot of the cubic filter leaves outside the strokes.
        return _Cell(warped > 1, glyph.width, glyph.height)

    def _warped(self, source: np.ndarray, corners: np.ndarray, width: int, height: int) -> np.ndarray:
        """Fill [height, width] from the quadrilateral ``corners`` of ``source``, nearest pixel."""
        where = (_BILINEAR @ corners).T @ self._grid(width, height)
        np.floor(where, out=where)
        x, y = where.reshape(2, height, width)
        return cv2.remap(source, x, y, cv2.INTER_NEAREST)

    def _grid(self, width: int, height: int) -> np.ndarray:
        """1, x, y and xy of each pixel center, x and y from 0 to 1: float32 [4, height * width]."""
        if (width, height) not in self._grids:
            x, y = np.meshgrid(
                (np.arange(width, dtype=np.float32) + 0.5) / width,
                (np.arange(height, dtype=np.float32) + 0.5) / height,
            )
            self._grids[width, height] = np.stack([np.ones_like(x), x, y, x * y]).reshape(4, -1)
        return self._grids[width, height]

    def _set_line(self, cells: list[_Cell], characters: int, draws: Draws) -> np.ndarray:
        """How many characters lie over each pixel: uint8 [height, width of the line]."""
        line_width = sum(cell.width for cell in cells)
        layers = np.zeros((self._height, max(line_width, self._width)), np.uint8)
        average = int(line_width / characters)
        overlap = int(self._style.word_offset_dx * average)
        left = int(average * 0.1)
        for cell in cells:
            if cell.ink is not None:
                _add(layers, cell.ink, left, int((self._height - cell.height) / 2))
            left += cell.width - draws.randbelow(overlap + 1)
        return layers

    def _noise(self, plane: np.ndarray, draws: Draws) -> np.ndarray:
        """The plane with dots and an arc over it."""
        width, height = self._width, self._height
        row = width + 2 * _MARGIN
        framed = np.zeros((height + 2 * _MARGIN, row), np.uint8)
        image_part = framed[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN]
        image_part[:] = plane
        places = np.empty((_DOTS, 1), np.int64)
        for number in range(_DOTS):
            x, y = draws.randbelow(width + 1), draws.randbelow(height + 1)
            places[number] = (y + _MARGIN) * row + x + _MARGIN
        framed.reshape(-1)[places + self._dot] = 255
        x1 = draws.randbelow(width // 5 + 1)
        x2 = draws.randbelow(width - width // 5 + 1) + width // 5
        y1 = draws.randbelow(height - 2 * (height // 5) + 1) + height // 5
        y2 = draws.randbelow(height - y1 - height // 5 + 1) + y1
        end = draws.randbelow(41) + 160
        start = draws.randbelow(21)
        image = Image.fromarray(image_part)
        ImageDraw.Draw(image).arc((x1, y1, x2, y2), start, end, fill=255)
        return np.asarray(image)


def _share(draws: Draws) -> float:
    return draws.randbits(32) / 2**32


def _color(draws: Draws, low: int, high: int) -> Color:
    red, green, blue = (draws.randbelow(high - low + 1) + low for _ in range(3))
    return blue, green, red


def _reach(size: int, limits: tuple[float, float], draws: Draws) -> float:
    """How far a corner may move; the lower limit is pixels where the range is a share, as in the library."""
    return size * _share(draws) * (limits[1] - limits[0]) + limits[0]


def _render(character: str, font: ImageFont.FreeTypeFont) -> _Glyph:
    draw = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    _, _, right, bottom = draw.multiline_textbbox((1, 1), character, font=font)
    image = Image.new("L", (int(right) + _MARGIN, int(bottom) + _MARGIN))
    ImageDraw.Draw(image).text((0, 0), character, font=font, fill=255)
    box = image.getbbox()
    return _Glyph(None if box is None else np.asarray(image.crop(box)), int(right), int(bottom))


def _turned(ink: np.ndarray, degrees: float) -> np.ndarray:
    """Turn counter-clockwise about the middle, in an image just large enough, as Pillow's ``rotate``."""
    height, width = ink.shape
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    half_x = (abs(cos) * width + abs(sin) * height) / 2
    half_y = (abs(sin) * width + abs(cos) * height) / 2
    new_width = math.ceil(width / 2 + half_x) - math.floor(width / 2 - half_x)
    new_height = math.ceil(height / 2 + half_y) - math.floor(height / 2 - half_y)
    middle_x, middle_y = (new_width - 1) / 2, (new_height - 1) / 2
    to_source = np.array(
        [
            [cos, -sin, (width - 1) / 2 - cos * middle_x + sin * middle_y],
            [sin, cos, (height - 1) / 2 - sin * middle_x - cos * middle_y],
        ]
    )
    return cv2.warpAffine(
        ink, to_source, (new_width, new_height), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    )


def _add(layers: np.ndarray, ink: np.ndarray, left: int, top: int) -> None:
    """Add 1 where ``ink`` lies with its corner at (left, top); what is outside is cut off."""
    height, width = layers.shape
    rows = slice(max(top, 0), max(min(top + ink.shape[0], height), 0))
    columns = slice(max(left, 0), max(min(left + ink.shape[1], width), 0))
    target = layers[rows, columns]
    target += ink[rows.start - top :, columns.start - left :][: target.shape[0], : target.shape[1]]


def _ink_share(layers: np.ndarray, ink: Color) -> np.ndarray:
    """Share of ink (0 to 255) under so many layers: each covers as much as its colour is bright."""
    blue, green, red = ink
    brightness = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16  # Pillow's grey
    opacity = min(int(brightness * 1.97), 255) / 255  # the library's table
    shares = 255 * (1 - (1 - opacity) ** np.arange(256))
    return cv2.LUT(layers, np.rint(shares).astype(np.uint8))


def _smoothed(plane: np.ndarray) -> np.ndarray:
    """Pillow's SMOOTH: the outermost pixels stay as they are."""
    smooth = cv2.filter2D(plane, -1, _SMOOTH)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        smooth[edge] = plane[edge]
    return smooth


def _colored(plane: np.ndarray, background: Color, ink: Color) -> np.ndarray:
    """From the share of ink to colour: uint8 [height, width, 3]."""
    share = np.arange(256)[:, None] / 255
    table = np.rint((1 - share) * np.array(background) + share * np.array(ink)).astype(np.uint8)
    return cv2.LUT(cv2.merge([plane, plane, plane]), table.reshape(1, 256, 3))


def _dot_offsets(row: int) -> np.ndarray:
    """Pixels of a dot, as Pillow draws the library's short thick line, relative to its place in a flat image."""
    image = Image.new("L", (2 * _MARGIN + 1, 2 * _MARGIN + 1))
    ImageDraw.Draw(image).line(((_MARGIN, _MARGIN), (_MARGIN - 1, _MARGIN - 1)), fill=255, width=3)
    y, x = np.nonzero(np.asarray(image))
    return (y - _MARGIN) * row + x - _MARGIN
