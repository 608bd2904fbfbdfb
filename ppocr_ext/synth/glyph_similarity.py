"""Find characters that look alike by the correlation of their glyphs in several fonts; imports no Paddle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from ppocr_ext.errors import DataError
from ppocr_ext.messages import shortened
from ppocr_ext.synth.contact_sheet import Caption, Picture, contact_sheet
from ppocr_ext.synth.lines.fonts import FontCoverage, FontFile, load_face
from ppocr_ext.synth.lines.painting import set_line

MIN_SIMILARITY = 0.5  # below it, characters do not look alike, and there are too many pairs
GRID = 32  # rows and columns of a map; an em has 21 of them, about the resolution of a line 48 pixels high in a network
_EM = 64  # pixels at which glyphs are drawn
_CANVAS = 96  # pixels: an em and a half
_BASELINE = 70
_BORDER = 4  # rows and columns without ink on each side of a filled map
# Standard deviations in cells: the difference of two Gaussians keeps the strokes and removes their weight.
_FINE = 0.7
_COARSE = 3.0
_BLOCK = 256  # so many characters are compared with all others at a time
_SHIFTS = tuple((down, right) for down in (-1, 0, 1) for right in (-1, 0, 1))
_SAME = 0.995
_SIZE_POWER = (
    0.1  # exponent of the ratios of heights and of widths: O and o look alike, but less than o and ο
)
_OFFSET = 0.5  # weight of a difference in height, in em: a raised dot looks less like a full stop


@dataclass(frozen=True)
class GlyphMaps:
    """The characters of one font as small maps, both as they stand in a line and stretched to one size.

    Attributes:
        font: the font.
        drawn: bool [C], which characters the font draws. The rows of the others are 0.
        placed: int8 [C, GRID · GRID], maps at their size and on the baseline, with the ink centered horizontally.
        filled: int8 [C, GRID · GRID], maps stretched until the ink fills them.
        height: float32 [C], height of the ink, in em.
        width: float32 [C], width of the ink, in em.
        middle: float32 [C], how far the middle of the ink lies above the baseline, in em.
    """

    font: FontFile
    drawn: np.ndarray
    placed: np.ndarray
    filled: np.ndarray
    height: np.ndarray
    width: np.ndarray
    middle: np.ndarray


class SimilarPair(NamedTuple):
    """Two characters by their numbers, first < second, and their similarity, up to 1.

    ``same`` tells whether all fonts draw them identically, or with a difference that no line would show.
    """

    first: int
    second: int
    similarity: float
    same: bool


def draw_maps(fonts: Sequence[FontFile], characters: Sequence[str]) -> list[GlyphMaps]:
    """Draw maps of all fonts that have at least two of the characters.

    Args:
        fonts: at least one.
        characters: single visible ones, at least two.

    Raises:
        DataError: no font draws two of them.
    """
    coverage = FontCoverage(fonts, characters)
    used = [pair for pair in zip(coverage.fonts, coverage.drawn, strict=True) if len(pair[1]) > 1]
    if not used:
        names = shortened([font.name for font in coverage.fonts], 5)
        raise DataError(
            f"No font ({names}) draws two of the {len(characters):,} characters. Fix: name fonts of their script; "
            "`pip install mplfonts` brings Chinese ones.",
            code="undrawable_characters",
        )
    bar = tqdm(used, desc="drawing", unit="font", leave=False, disable=None, delay=1)
    return [_draw_font(font, characters, drawn) for font, drawn in bar]


def _draw_font(font: FontFile, characters: Sequence[str], drawn: frozenset[str]) -> GlyphMaps:
    face = load_face(font, _EM)
    count = len(characters)
    side = GRID - 2 * _BORDER
    maps = np.zeros((2, count, GRID * GRID), np.int8)
    measures = np.ones((3, count), np.float32)
    is_drawn = np.zeros(count, bool)
    for number, character in enumerate(characters):
        if character not in drawn:
            continue
        picture = _picture(character, face)
        if not picture.any():  # the glyph lies outside the canvas
            continue
        is_drawn[number] = True
        rows = np.flatnonzero(picture.any(axis=1))
        columns = np.flatnonzero(picture.any(axis=0))
        ink = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        filled = np.pad(cv2.resize(ink, (side, side), interpolation=cv2.INTER_AREA), _BORDER)
        maps[0, number] = _strokes(cv2.resize(picture, (GRID, GRID), interpolation=cv2.INTER_AREA))
        maps[1, number] = _strokes(filled)
        measures[:, number] = *ink.shape, _BASELINE - (rows[0] + rows[-1]) / 2
    return GlyphMaps(font, is_drawn, *maps, *(measures / _EM))


def _picture(character: str, face: ImageFont.FreeTypeFont) -> np.ndarray:
    """Draw a character: uint8 [_CANVAS, _CANVAS], 255 where there is ink."""
    left, top, right, bottom = face.getbbox(character, anchor="ls")
    down = min(max(_BASELINE, -top), _CANVAS - bottom)  # a glyph that would reach outside is moved inside
    image = Image.new("L", (_CANVAS, _CANVAS))
    place = (_CANVAS // 2 - (left + right) / 2, down)
    ImageDraw.Draw(image).text(place, character, fill=255, font=face, anchor="ls")
    return np.asarray(image)


def _strokes(plane: np.ndarray) -> np.ndarray:
    """Return a difference of Gaussians: int8 [GRID · GRID], largest value 127."""
    exact = plane.astype(np.float32)
    difference = cv2.GaussianBlur(exact, (0, 0), _FINE) - cv2.GaussianBlur(exact, (0, 0), _COARSE)
    flat = (difference - difference.mean()).ravel()
    return np.round(flat * (127.0 / np.abs(flat).max())).astype(np.int8)


def similar_pairs(maps: Sequence[GlyphMaps], least: float) -> list[SimilarPair]:
    """Return the pairs of characters whose similarity is at least ``least``, most alike first.

    Two glyphs of a font are compared by the normalised correlation of their strokes, the greatest of nine shifts by up
    to one cell. They are compared twice, as they stand on the baseline, and stretched to one height and width. The
    second value is reduced by their difference in height, width and place: fonts draw 0 and 日 wide or narrow, and a
    cut-out line does not show the size of its letters. Both values are averaged over the fonts that draw both
    characters, and the similarity is the greater mean.

    Memory grows with the number of characters times the number of fonts, not with the number of pairs.

    Args:
        maps: maps of one or more fonts, for the same characters.
        least: from 0.5 to 1.
    """
    pairs: list[SimilarPair] = []
    blocks = range(0, len(maps[0].drawn), _BLOCK)
    for begin in tqdm(blocks, desc="comparing", unit="block", leave=False, disable=None, delay=1):
        similarity = np.triu(_block_similarity(maps, begin), 1)
        for row, column in np.argwhere(similarity >= least):
            value = min(1.0, float(similarity[row, column]))
            pairs.append(SimilarPair(int(begin + row), int(begin + column), value, value >= _SAME))
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))


def _block_similarity(maps: Sequence[GlyphMaps], begin: int) -> np.ndarray:
    """Compare the characters from ``begin`` with all from there on: float32 [block, C - begin]."""
    total = len(maps[0].drawn) - begin
    size = min(_BLOCK, total)
    placed, filled, fonts = (np.zeros((size, total), np.float32) for _ in range(3))
    for font in maps:
        drawn = font.drawn[begin:].astype(np.float32)
        if drawn[:size].any():
            fonts += np.outer(drawn[:size], drawn)
            placed += _correlation(font.placed[begin:], size)
            filled += _correlation(font.filled[begin:], size) * _size_similarity(font, begin, size)
    return np.maximum(placed, filled) / np.maximum(fonts, 1.0)


def _correlation(strokes: np.ndarray, size: int) -> np.ndarray:
    """Correlate the first rows of ``strokes`` (int8 [N, D]) with all of them, best of all shifts: float32 [size, N]."""
    columns = strokes.astype(np.float32)
    columns /= np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), 1.0)
    rows = columns[:size].reshape(size, GRID, GRID)
    best = np.full((size, len(columns)), -1.0, np.float32)
    for shift in _SHIFTS:
        moved = np.roll(rows, shift, axis=(1, 2)).reshape(size, -1)  # cells that wrap around are nearly empty
        np.maximum(best, moved @ columns.T, out=best)
    return best


def _size_similarity(font: GlyphMaps, begin: int, size: int) -> np.ndarray:
    """Return how little two glyphs differ in size and height: float32 [size, C - begin], up to 1."""
    likeness = np.ones((size, len(font.drawn) - begin), np.float32)
    for sides in (font.height[begin:], font.width[begin:]):
        ratio = np.minimum.outer(sides[:size], sides) / np.maximum.outer(sides[:size], sides)
        likeness *= ratio**_SIZE_POWER
    offset = np.abs(np.subtract.outer(font.middle[begin : begin + size], font.middle[begin:]))
    return likeness * np.maximum(1.0 - _OFFSET * offset, 0.0)


_STEP = 0.05  # similarity between two headings of the file
_MAX_PAIRS = 120  # limit of pairs on a sheet
_SIZE = 36  # pixels
_GAP = 16  # pixels between fonts
_WIDTH = 180  # pixels of a pair with the space after it, so that pairs stand in columns


class Group(NamedTuple):
    """Characters that all look like each other, and the similarity of the first pair."""

    characters: str
    similarity: float


def groups_of(pairs: Sequence[SimilarPair], characters: Sequence[str]) -> list[Group]:
    """Return groups that contain every pair, and only characters that form a pair with all others of the group.

    A character may be in several groups: 未 looks like 末 and 末 like 来, but 未 need not look like 来. Each pair that
    is in no group yet starts a group, and characters that look like all of its members are added.

    Args:
        pairs: most alike first.
        characters: the numbers in the pairs count these.
    """
    near: dict[int, dict[int, float]] = {}
    for pair in pairs:
        near.setdefault(pair.first, {})[pair.second] = pair.similarity
        near.setdefault(pair.second, {})[pair.first] = pair.similarity
    held: set[tuple[int, int]] = set()
    groups = []
    for pair in pairs:
        if (pair.first, pair.second) not in held:
            members = _members([pair.first, pair.second], near, held)
            held.update((one, other) for one in members for other in members if one < other)
            groups.append(Group("".join(characters[number] for number in sorted(members)), pair.similarity))
    return groups


def _members(members: list[int], near: dict[int, dict[int, float]], held: set[tuple[int, int]]) -> list[int]:
    """Add characters that look like all members, if they add a pair that no group contains yet."""
    common = set(near[members[0]]) & set(near[members[1]])
    while common:
        best = max(common, key=lambda number: (min(near[number][member] for member in members), -number))
        common.remove(best)
        if not all((min(best, member), max(best, member)) in held for member in members):
            members.append(best)
            common &= set(near[best])
    return members


def to_file(groups: Iterable[Group], same: Sequence[str], heading: Sequence[str]) -> str:
    """Return the text of a file of groups, which :func:`ppocr_ext.characters.look_alikes.read_groups` reads.

    Args:
        groups: most alike first.
        same: pairs of characters that all fonts draw identically; comments list them.
        heading: lines of the comment at the beginning.
    """
    comments = [*heading]
    if same:
        reason = "drawn the same in every font, so that no recogniser can tell them apart by their looks:"
        comments += ["", reason, *(f"  {pair}" for pair in same)]
    lines = [f"# {comment}".rstrip() for comment in comments]
    above = None
    for group in groups:
        step = int(group.similarity / _STEP + 1e-6) * _STEP
        if step != above:
            lines += ["", f"# similarity {step:.2f} and more"]
            above = step
        text = group.characters
        # A line that begins with # is a comment.
        lines.append(text[1:] + text[0] if text.startswith("#") else text)
    return "\n".join(lines) + "\n"


def pair_sheet(pairs: Sequence[SimilarPair], characters: Sequence[str], maps: Sequence[GlyphMaps]) -> bytes:
    """Return a PNG of pairs with their similarity, evenly spread from the most alike pair to the least.

    Args:
        pairs: most alike first, at least one.
        characters: the numbers in the pairs count these.
        maps: maps of the fonts.
    """
    ranks = np.linspace(0, len(pairs) - 1, min(len(pairs), _MAX_PAIRS)).round().astype(int)
    return contact_sheet([_pair_picture(pairs[rank], characters, maps) for rank in ranks])


def _pair_picture(pair: SimilarPair, characters: Sequence[str], maps: Sequence[GlyphMaps]) -> Picture:
    """Draw a pair in the first and the last font that have both characters."""
    text = characters[pair.first] + characters[pair.second]
    fonts = [font.font for font in maps if font.drawn[pair.first] and font.drawn[pair.second]]
    inks = [set_line(text, font, _SIZE, _SIZE / 6) for font in dict.fromkeys((fonts[0], fonts[-1]))]
    missing = [max(map(len, inks)) - len(ink) for ink in inks]  # rows
    ink = np.hstack(
        [
            np.pad(ink, ((rows // 2, (rows + 1) // 2), (0, _GAP)))
            for ink, rows in zip(inks, missing, strict=True)
        ]
    )
    ink = np.pad(ink, ((0, 0), (0, max(0, _WIDTH - ink.shape[1]))))
    image = np.repeat(255 - ink[:, :, None], 3, axis=2)
    caption = Caption(f"{text} {pair.similarity:.2f}", (fonts[0].path, fonts[0].index))
    return Picture(image, (caption,))
