"""Which characters look alike: correlation of their glyphs, over several fonts. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ppocr_ext.synth.glyph_maps import GRID, GlyphMaps

LEAST = 0.5  # below it nothing looks alike, and pairs are beyond count
_BLOCK = 256  # characters compared with all others at a time
_SHIFTS = tuple((down, right) for down in (-1, 0, 1) for right in (-1, 0, 1))
_SAME = 0.995
_SIZE_POWER = 0.1  # of the ratio of two heights and of two widths: O and o look alike, but less than o and ο
_OFFSET = 0.5  # of a difference in height, in em: a raised dot looks less like a full stop


class SimilarPair(NamedTuple):
    """Two characters by their numbers, first < second, and how alike they look, up to 1.

    ``same``: all fonts draw the same, or so nearly that no line would show the difference.
    """

    first: int
    second: int
    similarity: float
    same: bool


def similar_pairs(maps: Sequence[GlyphMaps], least: float) -> list[SimilarPair]:
    """The pairs of characters whose similarity is at least ``least``, most alike first.

    In a font, two glyphs are compared as they stand on the baseline, and stretched to one height and width, by the
    normalised correlation of their strokes, the greatest of nine shifts by up to one cell. The second counts less the
    more they differ in height, width and place: fonts draw 0 and 日 wide or narrow, and a cut-out line does not say
    how large its letters are. The similarity is the mean over the fonts that draw both of the first or of the second,
    whichever is greater.

    Memory grows with the number of characters times the number of fonts, not with the pairs compared.

    Args:
        maps: of one or more fonts, of the same characters.
        least: from 0.5 to 1.
    """
    count = len(maps[0].drawn)
    found: list[SimilarPair] = []
    all_pairs = count * (count - 1) // 2
    bar = tqdm(
        total=all_pairs, desc="comparing", unit="pair", unit_scale=True, leave=False, disable=None, delay=1
    )
    with bar:
        for begin in range(0, count, _BLOCK):
            similarity = _of_block(maps, begin)
            size = similarity.shape[0]
            similarity[np.tril_indices(size, 0, similarity.shape[1])] = 0.0
            for row, column in np.argwhere(similarity >= least):
                one, other = int(begin + row), int(begin + column)
                value = min(1.0, float(similarity[row, column]))
                found.append(SimilarPair(one, other, value, value >= _SAME))
            bar.update(sum(count - number - 1 for number in range(begin, begin + size)))
    return sorted(found, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def _of_block(maps: Sequence[GlyphMaps], begin: int) -> np.ndarray:
    """float32 [block, C - begin]: characters from ``begin`` on against all from there on."""
    total = len(maps[0].drawn) - begin
    size = min(_BLOCK, total)
    placed, filled, fonts = (np.zeros((size, total), np.float32) for _ in range(3))
    for font in maps:
        drawn = font.drawn[begin:].astype(np.float32)
        if not drawn[:size].any():
            continue
        fonts += np.outer(drawn[:size], drawn)
        placed += _correlation(font.placed[begin:], size)
        filled += _correlation(font.filled[begin:], size) * _likeness_of_place(font, begin, size)
    return np.maximum(placed, filled) / np.maximum(fonts, 1.0)


def _correlation(strokes: np.ndarray, size: int) -> np.ndarray:
    """float32 [size, N]: the first rows of ``strokes`` (int8 [N, D]) against all of them, the best of all shifts."""
    columns = strokes.astype(np.float32)
    columns /= np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), 1.0)
    rows = columns[:size].reshape(size, GRID, GRID)
    best = np.full((size, len(columns)), -1.0, np.float32)
    for shift in _SHIFTS:
        moved = np.roll(rows, shift, axis=(1, 2)).reshape(size, -1)  # what goes round is empty, or nearly so
        np.maximum(best, moved @ columns.T, out=best)
    return best


def _likeness_of_place(font: GlyphMaps, begin: int, size: int) -> np.ndarray:
    """float32 [size, C - begin], up to 1: how little two glyphs differ in size and height."""
    likeness = np.ones((size, len(font.drawn) - begin), np.float32)
    for sides in (font.height[begin:], font.width[begin:]):
        ratio = np.minimum.outer(sides[:size], sides) / np.maximum.outer(sides[:size], sides)
        likeness *= ratio**_SIZE_POWER
    offset = np.abs(np.subtract.outer(font.middle[begin : begin + size], font.middle[begin:]))
    likeness *= np.maximum(1.0 - _OFFSET * offset, 0.0)
    return likeness
