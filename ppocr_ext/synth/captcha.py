"""CAPTCHAs as the library ``captcha`` draws them; each depends only on a seed, a stream and an index.

No Paddle. Neither the number of processes nor the order of the images changes an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content
from ppocr_ext.messages import shortened
from ppocr_ext.synth.captcha_painters import PAINTERS, FastPainter, LibraryPainter, captcha_library
from ppocr_ext.synth.lines.fonts import drawable, read_fonts
from ppocr_ext.synth.option_checks import are_names, check_options, is_range, is_whole
from ppocr_ext.synth.seeded_random import SeededRandom

LIBRARY_FONT_SIZES = (42, 50, 56)
_MAX_LENGTH = 50  # characters of a CAPTCHA; far fewer can be read
_MAX_SHOWN = 10  # characters named in a message


@dataclass(frozen=True)
class CaptchaOptions:
    """Describe the characters and the size of CAPTCHAs.

    Args:
        characters: the characters drawn, each with the same probability.
        length: fewest and most characters of a CAPTCHA.
        width, height: pixels. 160×60 is the library's own; its noise has the same size in any image, so
            that at 90×30 it covers the digits, even for a person.
        fonts: TrueType files; none for the library's own (Latin letters and digits).
        font_sizes: pixels; one is drawn at random for each character.
        painter: ``"library"`` draws with the library itself; ``"fast"`` draws the same picture, except for a
            few edge pixels, in a fifth of the time.
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
            DataError: ``bad_value``, ``bad_font`` or ``undrawable_characters``; the message starts with the option.
        """
        text, sizes = self.characters, self.font_sizes
        characters = isinstance(text, str) and 0 < len(text) == len(set(text))
        length = is_range(self.length, 1, _MAX_LENGTH, (int,))
        font_sizes = bool(sizes) and all(is_whole(size, 4, 1024) for size in sizes)
        pixels = "20 to 4096 whole pixels"
        check_options(
            ("characters", characters, text, 'each character once, in quotes, such as "0123456789"'),
            ("length", length, self.length, f"the fewest and the most characters, from 1 to {_MAX_LENGTH}"),
            ("width", is_whole(self.width, 20, 4096), self.width, pixels),
            ("height", is_whole(self.height, 20, 4096), self.height, pixels),
            ("fonts", are_names(self.fonts), self.fonts, "font files"),
            ("font_sizes", font_sizes, sizes, "one or more sizes of 4 to 1024 whole pixels"),
            ("painter", self.painter in PAINTERS, self.painter, f"one of {', '.join(PAINTERS)}"),
        )
        for path in self.font_files():
            drawn = drawable(read_fonts(Path(path))[0], text)
            missing = [repr(character) for character in text if character not in drawn]
            if missing:
                raise DataError(
                    f"characters: the font {path} cannot draw {shortened(missing, _MAX_SHOWN, ' ')}. Fix: give a font "
                    "that has them in fonts, or leave them out.",
                    code="undrawable_characters",
                )

    def make_source(self, mode: str, charset: Charset, seed: int) -> CaptchaSource:
        """Return the source of a dataset; ``mode`` and ``charset`` make no difference to CAPTCHAs."""
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
        self.options, self.seed, self.max_length = options, seed, options.length[1]
        self.characters: Sequence[str] = options.characters

    @cached_property
    def _painter(self) -> LibraryPainter | FastPainter:
        options = self.options
        painter = PAINTERS[options.painter]
        return painter(options.width, options.height, options.font_files(), options.font_sizes)

    def to_json(self) -> dict[str, Any]:
        """Return everything except the seed that determines the images, as plain values; fonts by name and content."""
        return {**asdict(self.options), "fonts": [named_by_content(font) for font in self.options.fonts]}

    def label(self, stream: str, index: int) -> str:
        """Return the text of an image without drawing it."""
        return self._text(SeededRandom(self.seed, stream, index))

    def image(self, stream: str, index: int) -> tuple[str, np.ndarray]:
        """Draw an image: its text, and uint8 [height, width, 3], BGR."""
        rng = SeededRandom(self.seed, stream, index)
        text = self._text(rng)
        return text, self._painter.paint(text, rng)

    def font(self, stream: str, index: int) -> tuple[str, int]:
        """Return a font file, and the number of the font in it, that has the characters of an image."""
        return self.options.font_files()[0], 0

    def _text(self, rng: SeededRandom) -> str:
        return "".join(rng.choice(self.characters) for _ in range(rng.whole(self.options.length)))
