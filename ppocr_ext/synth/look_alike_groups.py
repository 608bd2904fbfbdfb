"""Groups of look-alike characters from pairs: the groups, the text of their file, and a sheet of pairs. No Paddle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ppocr_ext.synth.contact_sheet import Caption, Picture, contact_sheet
from ppocr_ext.synth.glyph_similarity import GlyphMaps, SimilarPair
from ppocr_ext.synth.lines.painting import set_line

_STEP = 0.05  # of similarity, between headings of the file
_MAX_PAIRS = 120  # on a sheet
_SIZE = 36  # pixels
_GAP = 16  # pixels between fonts
_WIDTH = 180  # pixels of a pair with the space after it, so that pairs stand in columns


class Group(NamedTuple):
    """Characters of which every two look alike, and the similarity of its first pair."""

    characters: str
    similarity: float


def groups_of(pairs: Sequence[SimilarPair], characters: Sequence[str]) -> list[Group]:
    """Return groups that hold every pair, and no two characters that are not a pair.

    A character may be in several groups: 未 looks like 末 and 末 like 来, but 未 need not look like 来. Each pair that
    is in no group yet starts one, to which the characters are added that look like all of its members.

    Args:
        pairs: most alike first.
        characters: the characters whose numbers the pairs have.
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
    """Add characters that look like all members, as long as each adds a pair that no group holds."""
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
        same: pairs of characters that are drawn identically; they are listed in comments.
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
        first, rest = group.characters[0], group.characters[1:]
        lines.append(
            rest + first if first == "#" else group.characters
        )  # a line that begins with # is a comment
    return "\n".join(lines) + "\n"


def pair_sheet(pairs: Sequence[SimilarPair], characters: Sequence[str], maps: Sequence[GlyphMaps]) -> bytes:
    """Return a PNG of pairs with their similarity, evenly spread from the most alike to the least.

    Args:
        pairs: most alike first, at least one.
        characters: the characters whose numbers the pairs have.
        maps: the glyphs in which the pairs were found.
    """
    ranks = np.linspace(0, len(pairs) - 1, min(len(pairs), _MAX_PAIRS)).round().astype(int)
    return contact_sheet([_picture(pairs[rank], characters, maps) for rank in ranks])


def _picture(pair: SimilarPair, characters: Sequence[str], maps: Sequence[GlyphMaps]) -> Picture:
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
