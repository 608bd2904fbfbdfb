"""CAPTCHAs as the library ``captcha`` draws them, each determined by a seed, a stream and an index.

No Paddle. The number of processes, the order in which images are asked for, and what was drawn before
make no difference to an image.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from ppocr_ext.errors import DataError, MissingPackageError
from ppocr_ext.io.file_names import named_by_content
from ppocr_ext.synth.draws import Draws

PainterName = Literal["library", "fast"]
LIBRARY_FONT_SIZES = (42, 50, 56)
_NO_CHARACTER = "\U0010ffff"  # a code point that no font has, to see what a font draws for those it lacks
_MOST = 50  # characters of a CAPTCHA; far fewer can be read


class Painter(Protocol):
    """Draws a text: uint8 [height, width, 3], blue-green-red as OpenCV has it."""

    def paint(self, text: str, draws: Draws) -> np.ndarray:
        """Draw ``text`` with the random choices that ``draws`` gives."""
        ...


@dataclass(frozen=True)
class CaptchaOptions:
    """What the CAPTCHAs show and how large they are.

    Args:
        characters: the characters drawn, each as likely as the others.
        length: fewest and most characters of a CAPTCHA.
        width, height: pixels. 160×60 is the library's own; its noise has the same size in any image, so
            that at 90×30 it covers the digits, even for a person.
        fonts: TrueType files; none for the library's own (Latin letters and digits).
        font_sizes: pixels; drawn at random.
        painter: ``"library"`` draws with the library itself; ``"fast"`` draws the same picture, a few
            edge pixels aside, four times as fast.
    """

    characters: str = "0123456789"
    length: tuple[int, int] = (4, 6)
    width: int = 160
    height: int = 60
    fonts: tuple[str, ...] = ()
    font_sizes: tuple[int, ...] = LIBRARY_FONT_SIZES
    painter: PainterName = "fast"

    def to_json(self) -> dict[str, Any]:
        """The options as plain values; fonts by name and content, so that they are comparable between machines."""
        return {
            **asdict(self),
            "length": list(self.length),
            "fonts": [named_by_content(font) for font in self.fonts],
            "font_sizes": list(self.font_sizes),
        }

    def check(self) -> None:
        """Refuse what cannot be drawn or read.

        Raises:
            DataError: characters missing, repeated, blank or not in a font; a length or size out of range.
        """
        repeated = sorted({c for c in self.characters if self.characters.count(c) > 1})
        if not self.characters or repeated:
            what = f"repeat {''.join(repeated)!r}" if repeated else "are empty"
            raise DataError(f"CAPTCHA characters {what}. Give each character once, such as 0123456789.")
        shortest, longest = self.length
        if not 1 <= shortest <= longest <= _MOST:
            raise DataError(
                f"CAPTCHA length {shortest} to {longest} is impossible. Give the fewest and the most characters, "
                f"1 to {_MOST}, such as 4 6."
            )
        if not (20 <= self.width <= 4096 and 20 <= self.height <= 4096):
            raise DataError(f"CAPTCHA size {self.width}×{self.height} is out of range (20 to 4096 pixels).")
        if not self.font_sizes or not all(4 <= size <= 1024 for size in self.font_sizes):
            raise DataError(f"CAPTCHA font sizes {self.font_sizes} are out of range (4 to 1024 pixels).")
        if self.painter not in ("library", "fast"):
            raise DataError(f"CAPTCHA painter {self.painter!r} is unknown. Choose library or fast.")
        self._check_fonts()

    def _check_fonts(self) -> None:
        from PIL.ImageFont import truetype

        for path in self.fonts or library_fonts():
            try:
                font = truetype(path, 40)
            except OSError as error:
                raise DataError(
                    f"{path} cannot be used as a font: {error}. Give a .ttf or .otf file."
                ) from error
            absent = bytes(font.getmask(_NO_CHARACTER))
            lacking = [c for c in self.characters if bytes(font.getmask(c)) in (absent, b"") or c.isspace()]
            if lacking:
                raise DataError(
                    f"The font {path} cannot draw {' '.join(map(repr, lacking[:10]))}"
                    f"{' …' if len(lacking) > 10 else ''}. Name a font that has these characters, or leave them out."
                )


class CaptchaSource:
    """CAPTCHAs by stream and index.

    Args:
        options: what to draw.
        seed: images of two seeds differ.

    Raises:
        DataError: the options cannot be drawn.
    """

    def __init__(self, options: CaptchaOptions, seed: int) -> None:
        options.check()
        self.options = options
        self.seed = seed

    @cached_property
    def _painter(self) -> Painter:
        if self.options.painter == "library":
            return LibraryPainter(self.options)
        from ppocr_ext.synth.captcha_painter import FastPainter

        return FastPainter(self.options)

    def label(self, stream: str, index: int) -> str:
        """The text of an image, without drawing it."""
        return self._text(Draws(self.seed, stream, index))

    def image(self, stream: str, index: int) -> tuple[str, np.ndarray]:
        """Text and image (uint8 [height, width, 3], blue-green-red)."""
        draws = Draws(self.seed, stream, index)
        text = self._text(draws)
        return text, self._painter.paint(text, draws)

    def font(self, split: str, index: int) -> tuple[str, int]:
        """A font file, and the number of the font in it, that has the characters of an image."""
        return (self.options.fonts or library_fonts())[0], 0

    def _text(self, draws: Draws) -> str:
        shortest, longest = self.options.length
        length = shortest + draws.randbelow(longest - shortest + 1)
        return "".join(draws.choice(self.options.characters) for _ in range(length))


class LibraryPainter:
    """The library's own drawing, with its source of randomness replaced by ours while it draws.

    It draws from the module ``secrets``, which cannot be seeded. Only one thread draws at a time.
    """

    _lock = threading.Lock()

    def __init__(self, options: CaptchaOptions) -> None:
        self._module = captcha_library()
        self._library = self._module.ImageCaptcha(
            options.width, options.height, list(options.fonts) or None, options.font_sizes
        )

    def paint(self, text: str, draws: Draws) -> np.ndarray:
        """Draw ``text`` with the random choices that ``draws`` gives."""
        with self._lock:
            secrets = self._module.secrets
            self._module.secrets = draws
            try:
                image = self._library.generate_image(text)
            finally:
                self._module.secrets = secrets
        return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


def library_fonts() -> list[str]:
    """The fonts that come with the library ``captcha``."""
    return list(captcha_library().DEFAULT_FONTS)


def captcha_library() -> Any:
    """The module ``captcha.image``.

    Raises:
        MissingPackageError: it is not installed, or draws from another source of randomness than ``secrets``.
    """
    try:
        import captcha.image as module
    except ImportError as error:
        raise MissingPackageError("CAPTCHAs need the package captcha: pip install 'captcha>=0.7'") from error
    if not hasattr(module, "secrets"):
        raise MissingPackageError("This package captcha is too old: pip install --upgrade 'captcha>=0.7'")
    return module
