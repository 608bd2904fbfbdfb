"""Which characters a font draws, and which fonts draw a text."""

from __future__ import annotations

import gc
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from fontTools.agl import AGL2UV, UV2AGL
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTFont
from PIL import ImageFont
from tqdm import tqdm

from ppocr_ext.synth.lines.fonts import FontFile
from ppocr_ext.synth.seeded_random import SeededRandom

_SIZE = 24  # pixels at which a glyph is tried
_MISPLACED = 0.3  # a font with more of its letters and digits in the wrong place is not for text
_ABSENT = ".notdef"  # the glyph of characters that a font lacks
_SHARED = 8  # a glyph of more characters than this is a placeholder
_NO_CHARACTER = "\U0010ffff"  # a code point that no font has, to see what a font draws for those it lacks
# Scripts whose letters change their shape or order with their neighbours, beside those written from the right.
_SHAPED = ((0x0900, 0x0DFF), (0x0F00, 0x109F), (0x1780, 0x17FF))


class Coverage:
    """Some fonts and what each draws of some characters.

    Args:
        fonts: at least one.
        characters: those that are to be drawn; the space needs no font.
    """

    def __init__(self, fonts: Sequence[FontFile], characters: Iterable[str]) -> None:
        self.fonts = tuple(fonts)
        self.characters = tuple(dict.fromkeys(character for character in characters if character != " "))
        simple = [character for character in self.characters if not needs_shaping(character)]
        bar = tqdm(self.fonts, desc="fonts", unit="font", leave=False, disable=None, delay=2)
        self.drawn = tuple(_drawable_and_freed(font, simple) for font in bar)
        self._all = (1 << len(self.fonts)) - 1
        self._masks = {
            character: sum(1 << number for number, drawn in enumerate(self.drawn) if character in drawn)
            for character in self.characters
        }

    def mask(self, text: str) -> int:
        """The fonts that draw all of ``text``: bit n is set for ``fonts[n]``."""
        masks = self._masks
        return reduce(
            lambda left, character: left & (self._all if character == " " else masks.get(character, 0)),
            set(text),
            self._all,
        )

    def choose(self, text: str, rng: SeededRandom) -> FontFile:
        """One of the fonts that draw all of ``text``, each as likely; there is at least one."""
        return self.fonts[rng.choice(self.numbers(self.mask(text)))]

    def numbers(self, mask: int) -> list[int]:
        """The numbers of the fonts in a mask."""
        return [number for number in range(len(self.fonts)) if mask >> number & 1]

    def missing(self) -> list[str]:
        """Characters that no font rng."""
        return [character for character, mask in self._masks.items() if not mask]

    def poor(self, share: float = 0.5) -> list[tuple[FontFile, int]]:
        """Fonts that draw less than this share of the characters, and how many they draw."""
        return [
            (font, len(drawn))
            for font, drawn in zip(self.fonts, self.drawn, strict=True)
            if len(drawn) < share * len(self.characters)
        ]


def needs_shaping(character: str) -> bool:
    """Whether a letter's form or place depends on its neighbours, which drawing letter by letter gets wrong."""
    code = ord(character)
    return unicodedata.bidirectional(character) in ("R", "AL") or any(
        low <= code <= high for low, high in _SHAPED
    )


def _drawable_and_freed(font: FontFile, characters: Iterable[str]) -> frozenset[str]:
    """As :func:`drawable`; the tables of a large font are cycles, 50 MB that Python would long not look for."""
    drawn = drawable(font, characters)
    gc.collect()
    return drawn


def drawable(font: FontFile, characters: Iterable[str]) -> frozenset[str]:
    """Those of ``characters`` that have a glyph of their own, with ink, in the font.

    Left out are characters that the font does not map; that it maps to a glyph which Unicode names
    otherwise (fonts of mathematical symbols put arrows in the place of letters); that share their glyph
    with many others (placeholders); or whose glyph is empty or the one for missing characters.
    """
    with TTFont(font.path, lazy=True, fontNumber=font.index) as table:
        mapped: dict[int, str] = table.getBestCmap() or {}
        shared, misplaced = Counter(mapped.values()), _misplaced(mapped)
        candidates = {
            character: glyph
            for character in characters
            if (glyph := mapped.get(ord(character))) is not None
            and glyph != _ABSENT
            and shared[glyph] <= _SHARED
            and ord(character) not in misplaced
        }
        face = ImageFont.truetype(font.path, _SIZE, index=font.index, layout_engine=ImageFont.Layout.BASIC)
        # Boxes are compared first: they are cheap, and few characters have that of the absent ones. What
        # is drawn is no guide, since hinting makes different pixels of the same outline.
        box_of_absent = face.getbbox(_NO_CHARACTER)
        glyphs = table.getGlyphSet()
        outline_of_absent = _outline(glyphs, _ABSENT)
        return frozenset(
            sys.intern(character)
            for character, glyph in candidates.items()
            if _has_ink(box := face.getbbox(character))
            and not (box == box_of_absent and _outline(glyphs, glyph) == outline_of_absent)
        )


def _misplaced(mapped: Mapping[int, str]) -> frozenset[int]:
    """Code points of ASCII characters for which the font has others; all, where this is so for many.

    Fonts of mathematical symbols do so. The names of their glyphs say it.
    """
    there = [code for code in range(33, 127) if code in mapped]
    wrong = frozenset(code for code in there if _names_another(mapped[code], code))
    letters = [code for code in there if chr(code).isalnum()]
    if letters and len(wrong.intersection(letters)) > _MISPLACED * len(letters):
        return frozenset(mapped)
    return wrong


def _names_another(glyph: str, code: int) -> bool:
    """Whether a glyph's name is the one of another character than ``code`` (ASCII), or of a symbol."""
    if glyph in AGL2UV:
        return AGL2UV[glyph] != code
    is_word = re.fullmatch(r"[A-Za-z]{4,}", glyph) is not None  # and no number, as uni0041 and cid00034 have
    return is_word and chr(code).isalnum() and not glyph.startswith(UV2AGL[code])


def _has_ink(box: tuple[float, float, float, float]) -> bool:
    left, top, right, bottom = box
    return right > left and bottom > top


def _outline(glyphs: Any, name: str) -> list[Any]:
    """The strokes of a glyph; those of which it is composed are resolved."""
    pen = DecomposingRecordingPen(glyphs)
    if name in glyphs:
        glyphs[name].draw(pen)
    return list(pen.value)
