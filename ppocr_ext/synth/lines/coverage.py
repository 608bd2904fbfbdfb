"""The characters that a font draws, and the fonts that draw a text."""

from __future__ import annotations

import gc
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fontTools.agl import AGL2UV, UV2AGL
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTFont
from tqdm import tqdm

from ppocr_ext.synth.lines.fonts import FontFile, load_face
from ppocr_ext.synth.seeded_random import SeededRandom

_SIZE = 24  # pixels at which a glyph is tried
_MISPLACED = 0.3  # a font with more of its letters and digits in the wrong place is not for text
_ABSENT = ".notdef"  # the glyph of characters that a font lacks
_SHARED = 8  # a glyph of more characters than this is a placeholder
_POOR = 0.5  # a font with less than this share of the characters is named in a note
_NO_CHARACTER = "\U0010ffff"  # a code point that no font has; shows what a font draws for a missing character
# Scripts whose letters change their shape or order with their neighbors, besides those written from the right.
_SHAPED = ((0x0900, 0x0DFF), (0x0F00, 0x109F), (0x1780, 0x17FF))


class FontCoverage:
    """Find the characters that each of some fonts draws.

    Args:
        fonts: at least one.
        characters: those that are to be drawn; the space needs no font.
    """

    def __init__(self, fonts: Sequence[FontFile], characters: Iterable[str]) -> None:
        self.fonts = tuple(fonts)
        self.characters = tuple(dict.fromkeys(character for character in characters if character != " "))
        simple = [character for character in self.characters if not needs_shaping(character)]
        bar = tqdm(self.fonts, desc="fonts", unit="font", leave=False, disable=None, delay=2)
        self.drawn = tuple(drawable(font, simple) for font in bar)
        gc.collect()
        self._all = (1 << len(self.fonts)) - 1
        self._masks = {
            character: sum(1 << number for number, drawn in enumerate(self.drawn) if character in drawn)
            for character in self.characters
        }

    def mask(self, text: str) -> int:
        """Return the fonts that draw all of ``text``: bit n is set for ``fonts[n]``."""
        mask = self._all
        for character in set(text) - {" "}:
            mask &= self._masks.get(character, 0)
        return mask

    def numbers(self, mask: int) -> list[int]:
        """Return the numbers of the fonts in a mask."""
        return [number for number in range(len(self.fonts)) if mask >> number & 1]

    def choose(self, text: str, rng: SeededRandom) -> FontFile:
        """Return one of the fonts that draw all of ``text``, each with the same probability; there is at least one."""
        return self.fonts[rng.choice(self.numbers(self.mask(text)))]

    def missing(self) -> list[str]:
        """Return the characters that no font draws."""
        return [character for character, mask in self._masks.items() if not mask]

    def notes(self) -> list[str]:
        """Return a sentence about the fonts that draw few of the characters; an empty list if there are none."""
        least, pairs = _POOR * len(self.characters), zip(self.fonts, self.drawn, strict=True)
        poor = [
            f"{font.name} ({len(drawn) or 'none; not used'})" for font, drawn in pairs if len(drawn) < least
        ]
        what = f"of {len(self.characters)} characters, these fonts draw less than half"
        return [f"{what}: {', '.join(poor)}"] if poor else []


def needs_shaping(character: str) -> bool:
    """Return whether the shape or place of a letter depends on its neighbors, so that it cannot be drawn alone."""
    from_the_right = unicodedata.bidirectional(character) in ("R", "AL")
    return from_the_right or any(low <= ord(character) <= high for low, high in _SHAPED)


def drawable(font: FontFile, characters: Iterable[str]) -> frozenset[str]:
    """Return those of ``characters`` that have a glyph of their own, with ink, in the font.

    Left out are characters that the font does not map; that it maps to a glyph which Unicode names
    otherwise (fonts of mathematical symbols put arrows in the place of letters); that share their glyph
    with many others (placeholders); or whose glyph is empty or the one for missing characters.
    """
    gc.collect()  # the tables of a large font are cycles: 50 MB that Python would free much later
    with TTFont(font.path, lazy=True, fontNumber=font.index) as table:
        mapped: dict[int, str] = table.getBestCmap() or {}
        shared, misplaced = Counter(mapped.values()), _misplaced(mapped)
        face = load_face(font, _SIZE)
        # Boxes are compared first: they are cheap, and few characters have that of the absent ones. The
        # pixels cannot be compared, since hinting makes different pixels of the same outline.
        box_of_absent = face.getbbox(_NO_CHARACTER)
        glyphs = table.getGlyphSet()
        outline_of_absent = _outline(glyphs, _ABSENT)
        found = set()
        for character in characters:
            glyph = mapped.get(ord(character), _ABSENT)
            if glyph == _ABSENT or shared[glyph] > _SHARED or ord(character) in misplaced:
                continue
            left, top, right, bottom = box = face.getbbox(character)
            absent = box == box_of_absent and _outline(glyphs, glyph) == outline_of_absent
            if right > left and bottom > top and not absent:
                found.add(sys.intern(character))
        return frozenset(found)


def _misplaced(mapped: Mapping[int, str]) -> frozenset[int]:
    """Return code points of ASCII characters for which the font has others; all if most letters are so.

    Fonts of mathematical symbols do this. The names of their glyphs show it.
    """
    there = [code for code in range(33, 127) if code in mapped]
    wrong = frozenset(code for code in there if _names_another(mapped[code], code))
    letters = [code for code in there if chr(code).isalnum()]
    if letters and len(wrong.intersection(letters)) > _MISPLACED * len(letters):
        return frozenset(mapped)
    return wrong


def _names_another(glyph: str, code: int) -> bool:
    """Return whether a glyph has the name of a symbol or of another character than ``code`` (ASCII)."""
    if glyph in AGL2UV:
        return AGL2UV[glyph] != code
    is_word = re.fullmatch(r"[A-Za-z]{4,}", glyph) is not None  # and no number, as uni0041 and cid00034 have
    return is_word and chr(code).isalnum() and not glyph.startswith(UV2AGL[code])


def _outline(glyphs: Any, name: str) -> list[Any]:
    """Return the strokes of a glyph; those of which it is composed are resolved."""
    pen = DecomposingRecordingPen(glyphs)
    if name in glyphs:
        glyphs[name].draw(pen)
    return list(pen.value)
