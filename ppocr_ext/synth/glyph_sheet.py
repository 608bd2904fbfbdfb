"""A sheet of pairs of look-alike characters, drawn in the fonts that they were compared in. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppocr_ext.synth.contact_sheet import Picture, contact_sheet
from ppocr_ext.synth.glyph_maps import GlyphMaps
from ppocr_ext.synth.glyph_similarity import SimilarPair
from ppocr_ext.synth.lines.fonts import FontFile
from ppocr_ext.synth.lines.painting import set_line

_MOST = 120  # pairs on a sheet
_SIZE = 36  # pixels
_GAP = 16  # pixels between fonts
_WIDTH = 180  # pixels of a pair with the room behind it, so that pairs stand in columns


def pair_sheet(pairs: Sequence[SimilarPair], characters: Sequence[str], maps: Sequence[GlyphMaps]) -> bytes:
    """A PNG of pairs with their similarity, evenly spread from the most alike to the least.

    Args:
        pairs: most alike first, at least one.
        characters: those whose numbers the pairs have.
        maps: what the pairs were found in.
    """
    ranks = np.linspace(0, len(pairs) - 1, min(len(pairs), _MOST)).round().astype(int)
    return contact_sheet([_picture(pairs[rank], characters, maps) for rank in ranks])


def _picture(pair: SimilarPair, characters: Sequence[str], maps: Sequence[GlyphMaps]) -> Picture:
    text = characters[pair.first] + characters[pair.second]
    fonts = [font.font for font in maps if font.drawn[pair.first] and font.drawn[pair.second]]
    inks = [_set(text, font) for font in dict.fromkeys((fonts[0], fonts[-1]))]
    height = max(len(ink) for ink in inks)
    parts = [
        np.pad(ink, (((height - len(ink)) // 2, (height - len(ink) + 1) // 2), (0, _GAP))) for ink in inks
    ]
    ink = np.hstack(parts)
    ink = np.pad(ink, ((0, 0), (0, max(0, _WIDTH - ink.shape[1]))))
    image = np.repeat(255 - ink[:, :, None], 3, axis=2)
    return Picture(f"{text} {pair.similarity:.2f}", image, (fonts[0].path, fonts[0].index))


def _set(text: str, font: FontFile) -> np.ndarray:
    return set_line(text, font, _SIZE, spacing=_SIZE / 6)
