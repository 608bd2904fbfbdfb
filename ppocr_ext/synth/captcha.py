"""CAPTCHAs as the library ``captcha`` draws them. Each depends only on a seed, a stream and an index.

No Paddle. Neither the number of processes nor the order of the images changes an image.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError, MissingPackageError
from ppocr_ext.io.resources import named_by_content
from ppocr_ext.messages import shortened
from ppocr_ext.synth.lines.fonts import drawable, read_fonts
from ppocr_ext.synth.option_checks import are_names, check_options, is_range, is_whole
from ppocr_ext.synth.seeded_random import SeededRandom

Color = tuple[int, int, int]
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's SMOOTH filter
# This matrix turns the corners of a quadrilateral (upper left, lower left, lower right, upper right) into the
# coefficients of 1, x, y, xy in the bilinear map from the unit square to the quadrilateral.
_BILINEAR = np.array([[1, 0, 0, 0], [-1, 0, 0, 1], [-1, 1, 0, 0], [1, -1, 1, -1]], np.float32)
_DOTS = 30
_MARGIN = 4  # around the image, for dots that lie partly outside


def captcha_library() -> Any:
    """Return the module ``captcha.image``.

    Raises:
        MissingPackageError: it is not installed, or does not draw its random numbers from ``secrets``.
    """
    try:
        import captcha.image as module
    except ImportError as error:
        raise MissingPackageError(
            "CAPTCHAs need the package captcha. Fix: pip install 'captcha>=0.7'", code="missing_package"
        ) from error
    if not hasattr(module, "secrets"):
        raise MissingPackageError(
            "The installed package captcha is too old. Fix: pip install --upgrade 'captcha>=0.7'",
            code="old_package",
        )
    return module


class LibraryPainter:
    """Draw with the library itself, and replace its random numbers with ours while it draws.

    The library uses the module ``secrets``, which cannot be seeded, and takes no other generator. Only one thread draws
    at a time.
    """

    _lock = threading.Lock()

    def __init__(self, width: int, height: int, fonts: Sequence[str], font_sizes: Sequence[int]) -> None:
        self._module = captcha_library()
        self._library = self._module.ImageCaptcha(width, height, list(fonts), tuple(font_sizes))

    def paint(self, text: str, rng: SeededRandom) -> np.ndarray:
        """Draw ``text``: uint8 [height, width, 3], BGR."""
        with self._lock:
            secrets = self._module.secrets
            self._module.secrets = rng
            try:
                image = self._library.generate_image(text)
            finally:
                self._module.secrets = secrets
        return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


class _Glyph(NamedTuple):
    """The ink of a character ([h, w], None for a space), and the size of its box in the library."""

    ink: np.ndarray | None
    width: int
    height: int


class FastPainter:
    """Draw what ``captcha.image.ImageCaptcha`` draws, in a fifth of the time.

    Args:
        width, height: the size of the image, pixels.
        fonts: TrueType files.
        font_sizes: pixels.
    """

    def __init__(self, width: int, height: int, fonts: Sequence[str], font_sizes: Sequence[int]) -> None:
        self._width = width
        self._height = height
        self._style: Any = captcha_library().ImageCaptcha  # it has the ranges of angle, warp and spacing
        self._fonts = [ImageFont.truetype(path, size) for path in fonts for size in font_sizes]
        # Pixels of a dot relative to its place in a flat image, from Pillow's short thick line.
        image = Image.new("L", (2 * _MARGIN + 1, 2 * _MARGIN + 1))
        ImageDraw.Draw(image).line(((_MARGIN, _MARGIN), (_MARGIN - 1, _MARGIN - 1)), fill=255, width=3)
        y, x = np.nonzero(np.asarray(image))
        self._dot = (y - _MARGIN) * (width + 2 * _MARGIN) + x - _MARGIN

    def paint(self, text: str, rng: SeededRandom) -> np.ndarray:
        """Draw ``text``: uint8 [height, width, 3], BGR."""
        background = _color(rng, 238, 255)
        rng.randbelow(36)  # the library draws an opacity of the ink here, without effect on an RGB image
        ink = _color(rng, 10, 200)
        cells: list[_Glyph] = []
        for character in text:
            if _share(rng) > self._style.word_space_probability:
                cells.append(self._cell(" ", rng))
            cells.append(self._cell(character, rng))
        plane = _ink_share(self._layers(cells, len(text), rng), ink)
        if plane.shape[1] > self._width:
            plane = np.asarray(Image.fromarray(plane).resize((self._width, self._height)))
        plane = self._with_noise(plane, rng)
        smooth = cv2.filter2D(plane, -1, _SMOOTH)
        for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):  # Pillow leaves them as they are
            smooth[edge] = plane[edge]
        share = np.arange(256)[:, None] / 255
        table = np.rint((1 - share) * np.array(background) + share * np.array(ink)).astype(np.uint8)
        return cv2.LUT(cv2.merge([smooth] * 3), table.reshape(1, 256, 3))

    def _cell(self, character: str, rng: SeededRandom) -> _Glyph:
        """Turn, stretch and warp a character by random amounts; its ink is bool."""
        style = self._style
        font = rng.choice(self._fonts)
        for low, high in (style.character_offset_dx, style.character_offset_dy):
            rng.randbelow(high - low + 1)  # an offset, which the library crops away again
        glyph = _render(character, font)
        low, high = style.character_rotate
        angle = low + _share(rng) * (high - low)
        # How far a corner may move. As in the library, the lower limit is in pixels, though the range is a share.
        low_x, high_x = style.character_warp_dx
        low_y, high_y = style.character_warp_dy
        reach_x = glyph.width * _share(rng) * (high_x - low_x) + low_x
        reach_y = glyph.height * _share(rng) * (high_y - low_y) + low_y
        x1, y1, x2, y2 = (
            int(_share(rng) * 2 * reach - reach) for reach in (reach_x, reach_y, reach_x, reach_y)
        )
        if glyph.ink is None:
            return glyph
        wide = glyph.width + abs(x1) + abs(x2)
        tall = glyph.height + abs(y1) + abs(y2)
        stretched = cv2.resize(_turned(glyph.ink, angle), (wide, tall), interpolation=cv2.INTER_CUBIC)
        corners = np.array([(x1, y1), (-x1, tall - y2), (wide + x2, tall + y2), (wide - x2, -y1)], np.float32)
        where = np.floor((_BILINEAR @ corners).T @ _grid(glyph.width, glyph.height))
        x, y = where.reshape(2, glyph.height, glyph.width)
        warped = cv2.remap(stretched, x, y, cv2.INTER_NEAREST)
        # Any trace of ink counts in full, since the library pastes by color, not by opacity. A level of 1 of 255 is
        # only the overshoot of the cubic filter outside the strokes.
        return glyph._replace(ink=warped > 1)

    def _layers(self, cells: list[_Glyph], characters: int, rng: SeededRandom) -> np.ndarray:
        """Set a line and count the characters over each pixel: uint8 [height, width of the line]."""
        line_width = sum(cell.width for cell in cells)
        layers = np.zeros((self._height, max(line_width, self._width)), np.uint8)
        average = int(line_width / characters)
        overlap = int(self._style.word_offset_dx * average)
        left = int(average * 0.1)
        for cell in cells:
            if cell.ink is not None:
                _add(layers, cell.ink, left, int((self._height - cell.height) / 2))
            left += cell.width - rng.randbelow(overlap + 1)
        return layers

    def _with_noise(self, plane: np.ndarray, rng: SeededRandom) -> np.ndarray:
        """Draw dots and an arc over the plane."""
        width = self._width
        height = self._height
        framed = np.pad(plane, _MARGIN)
        dots = [(rng.randbelow(width + 1), rng.randbelow(height + 1)) for _ in range(_DOTS)]
        x, y = np.array(dots).T[..., None]
        framed.reshape(-1)[(y + _MARGIN) * framed.shape[1] + x + _MARGIN + self._dot] = 255
        x1 = rng.randbelow(width // 5 + 1)
        x2 = rng.randbelow(width - width // 5 + 1) + width // 5
        y1 = rng.randbelow(height - 2 * (height // 5) + 1) + height // 5
        y2 = rng.randbelow(height - y1 - height // 5 + 1) + y1
        end = rng.randbelow(41) + 160
        start = rng.randbelow(21)
        image = Image.fromarray(framed[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN])
        ImageDraw.Draw(image).arc((x1, y1, x2, y2), start, end, fill=255)
        return np.asarray(image)


PAINTERS: dict[str, type[LibraryPainter | FastPainter]] = {"library": LibraryPainter, "fast": FastPainter}


def _share(rng: SeededRandom) -> float:
    return rng.randbits(32) / 2**32


def _color(rng: SeededRandom, low: int, high: int) -> Color:
    red, green, blue = (rng.whole((low, high)) for _ in range(3))
    return blue, green, red


@lru_cache(maxsize=1 << 12)
def _render(character: str, font: ImageFont.FreeTypeFont) -> _Glyph:
    """Render a character, its ink cut out: uint8, 255 where there is ink."""
    draw = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    _, _, right, bottom = draw.multiline_textbbox((1, 1), character, font=font)
    image = Image.new("L", (int(right) + _MARGIN, int(bottom) + _MARGIN))
    ImageDraw.Draw(image).text((0, 0), character, font=font, fill=255)
    box = image.getbbox()
    return _Glyph(None if box is None else np.asarray(image.crop(box)), int(right), int(bottom))


@lru_cache(maxsize=1 << 12)
def _grid(width: int, height: int) -> np.ndarray:
    """Return 1, x, y and xy of each pixel center, x and y from 0 to 1: float32 [4, height * width]."""
    x, y = np.meshgrid(*((np.arange(size, dtype=np.float32) + 0.5) / size for size in (width, height)))
    return np.stack([np.ones_like(x), x, y, x * y]).reshape(4, -1)


def _turned(ink: np.ndarray, degrees: float) -> np.ndarray:
    """Turn an image counter-clockwise about its middle, into one just large enough, like Pillow's ``rotate``."""
    height, width = ink.shape
    cos = math.cos(math.radians(degrees))
    sin = math.sin(math.radians(degrees))
    half_x = (abs(cos) * width + abs(sin) * height) / 2
    half_y = (abs(sin) * width + abs(cos) * height) / 2
    new_width = math.ceil(width / 2 + half_x) - math.floor(width / 2 - half_x)
    new_height = math.ceil(height / 2 + half_y) - math.floor(height / 2 - half_y)
    middle_x = (new_width - 1) / 2
    middle_y = (new_height - 1) / 2
    to_source = np.array(
        [
            [cos, -sin, (width - 1) / 2 - cos * middle_x + sin * middle_y],
            [sin, cos, (height - 1) / 2 - sin * middle_x - cos * middle_y],
        ]
    )
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(ink, to_source, (new_width, new_height), flags=flags)


def _add(layers: np.ndarray, ink: np.ndarray, left: int, top: int) -> None:
    """Add ``ink`` to ``layers`` with its corner at (left, top); parts outside are cut off."""
    height, width = layers.shape
    rows = slice(max(top, 0), max(min(top + ink.shape[0], height), 0))
    columns = slice(max(left, 0), max(min(left + ink.shape[1], width), 0))
    target = layers[rows, columns]
    target += ink[rows.start - top :, columns.start - left :][: target.shape[0], : target.shape[1]]


def _ink_share(layers: np.ndarray, ink: Color) -> np.ndarray:
    """Return the share of ink (0 to 255) for each number of layers. A layer is as opaque as its color is bright."""
    blue, green, red = ink
    brightness = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16  # Pillow's grey
    opacity = min(int(brightness * 1.97), 255) / 255  # the library's table
    shares = 255 * (1 - (1 - opacity) ** np.arange(256))
    return cv2.LUT(layers, np.rint(shares).astype(np.uint8))


LIBRARY_FONT_SIZES = (42, 50, 56)
_MAX_LENGTH = 50  # characters of a CAPTCHA; far fewer can be read
_MAX_SHOWN = 10  # characters named in a message


@dataclass(frozen=True)
class CaptchaOptions:
    """Describe the characters and the size of CAPTCHAs.

    Args:
        characters: the characters drawn, each with the same probability.
        length: fewest and most characters of a CAPTCHA.
        width, height: the size of the image, pixels. The library's own size is 160×60. Its noise has the same size in
            any image, so at 90×30 it hides the digits, even from a person.
        fonts: TrueType files. An empty tuple stands for the library's own fonts (Latin letters and digits).
        font_sizes: sizes in pixels, of which one is chosen at random for each character.
        painter: ``"library"`` draws with the library itself; ``"fast"`` draws the same picture, except for a few edge
            pixels, in a fifth of the time.
    """

    characters: str = "0123456789"
    length: tuple[int, int] = (4, 6)
    width: int = 160
    height: int = 60
    fonts: tuple[str, ...] = ()
    font_sizes: tuple[int, ...] = LIBRARY_FONT_SIZES
    painter: Literal["library", "fast"] = "fast"

    def font_files(self) -> Sequence[str]:
        """Return the files of ``fonts``, or those of the library."""
        return self.fonts or captcha_library().DEFAULT_FONTS

    def check(self) -> None:
        """Check that the CAPTCHAs can be drawn.

        Raises:
            DataError: an option cannot be used (``bad_value``, ``bad_font`` or ``undrawable_characters``). The message
                starts with the option.
        """
        text = self.characters
        sizes = self.font_sizes
        pixels = "20 to 4096 whole pixels"
        check_options(
            (
                "characters",
                isinstance(text, str) and 0 < len(text) == len(set(text)),
                text,
                'each character once, in quotes, such as "0123456789"',
            ),
            (
                "length",
                is_range(self.length, 1, _MAX_LENGTH, (int,)),
                self.length,
                f"the fewest and the most characters, from 1 to {_MAX_LENGTH}",
            ),
            ("width", is_whole(self.width, 20, 4096), self.width, pixels),
            ("height", is_whole(self.height, 20, 4096), self.height, pixels),
            ("fonts", are_names(self.fonts), self.fonts, "font files"),
            (
                "font_sizes",
                bool(sizes) and all(is_whole(size, 4, 1024) for size in sizes),
                sizes,
                "one or more sizes of 4 to 1024 whole pixels",
            ),
            ("painter", self.painter in PAINTERS, self.painter, f"one of {', '.join(PAINTERS)}"),
        )
        for path in self.font_files():
            drawn = drawable(read_fonts(Path(path))[0], text)
            if missing := [repr(character) for character in text if character not in drawn]:
                raise DataError(
                    f"characters: the font {path} cannot draw {shortened(missing, _MAX_SHOWN, ' ')}. Fix: give a font "
                    "that has them in fonts, or leave them out.",
                    code="undrawable_characters",
                )

    def make_source(self, mode: str, charset: Charset, seed: int) -> CaptchaSource:
        """Return the source of a dataset; CAPTCHAs do not depend on ``mode`` and ``charset``."""
        return CaptchaSource(self, seed)


class CaptchaSource:
    """Draw CAPTCHAs by stream and index.

    Args:
        options: what to draw.
        seed: another seed gives other images.

    Raises:
        DataError: the options cannot be drawn.
    """

    kind = "captcha"

    def __init__(self, options: CaptchaOptions, seed: int) -> None:
        options.check()
        self.options = options
        self.seed = seed
        self.max_length = options.length[1]
        self.characters: Sequence[str] = options.characters

    @cached_property
    def _painter(self) -> LibraryPainter | FastPainter:
        options = self.options
        painter = PAINTERS[options.painter]
        return painter(options.width, options.height, options.font_files(), options.font_sizes)

    def to_json(self) -> dict[str, Any]:
        """Return all that determines the images except the seed, as plain values, with fonts by name and content."""
        return {**asdict(self.options), "fonts": [named_by_content(font) for font in self.options.fonts]}

    def label(self, stream: str, index: int) -> str:
        """Return the text of an image without drawing it."""
        return self._text(SeededRandom(self.seed, stream, index))

    def image(self, stream: str, index: int) -> tuple[str, np.ndarray]:
        """Draw an image; return its text, and its pixels uint8 [height, width, 3], BGR."""
        rng = SeededRandom(self.seed, stream, index)
        text = self._text(rng)
        return text, self._painter.paint(text, rng)

    def font(self, stream: str, index: int) -> tuple[str, int]:
        """Return a font with the characters of an image, as its file and its number in the file."""
        return self.options.font_files()[0], 0

    def _text(self, rng: SeededRandom) -> str:
        return "".join(rng.choice(self.characters) for _ in range(rng.whole(self.options.length)))
