"""Groups of look-alike characters from pairs, and the file that they are written to. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ppocr_ext.synth.glyph_similarity import SimilarPair

_STEP = 0.05  # of similarity, between headings of the file


class Group(NamedTuple):
    """Characters of which every two look alike, and the similarity of the pair that it was begun with."""

    characters: str
    similarity: float


def groups_of(pairs: Sequence[SimilarPair], characters: Sequence[str]) -> list[Group]:
    """Groups that hold every pair, and no two characters that are not a pair.

    A character may be in several groups: that 未 looks like 末 and 末 like 来 makes no look-alikes of 未 and 来.
    Each pair that no group holds yet begins one, which takes in characters that look like all of its members.

    Args:
        pairs: most alike first.
        characters: those whose numbers the pairs have.
    """
    near: dict[int, dict[int, float]] = {}
    for pair in pairs:
        near.setdefault(pair.first, {})[pair.second] = pair.similarity
        near.setdefault(pair.second, {})[pair.first] = pair.similarity
    held: set[tuple[int, int]] = set()
    groups = []
    for pair in pairs:
        if (pair.first, pair.second) in held:
            continue
        members = _grown([pair.first, pair.second], near, held)
        held.update((one, other) for one in members for other in members if one < other)
        groups.append(Group("".join(characters[number] for number in sorted(members)), pair.similarity))
    return groups


def _grown(members: list[int], near: dict[int, dict[int, float]], held: set[tuple[int, int]]) -> list[int]:
    """The members and all that look like each of them, as long as that brings a pair which no group holds."""
    common = set(near[members[0]]) & set(near[members[1]])
    while common:
        best = max(common, key=lambda number: (min(near[number][member] for member in members), -number))
        common.remove(best)
        if all((min(best, member), max(best, member)) in held for member in members):
            continue
        members.append(best)
        common &= set(near[best])
    return members


def to_file(groups: Iterable[Group], same: Iterable[str], heading: Sequence[str]) -> str:
    """The text of a file of groups, which :func:`ppocr_ext.characters.look_alikes.read_groups` reads.

    Args:
        groups: most alike first.
        same: pairs of characters that are drawn the same, which stand in comments.
        heading: lines of the comment at the beginning.
    """
    lines = [f"# {line}" for line in heading]
    same = list(same)
    if same:
        lines += [
            "#",
            "# drawn the same in every font, so that no recogniser can tell them apart by their looks:",
        ]
        lines += [f"#   {pair}" for pair in same]
    above = None
    for group in groups:
        step = int(group.similarity / _STEP + 1e-6) * _STEP
        if step != above:
            lines += ["", f"# similarity {step:.2f} and more"]
            above = step
        lines.append(_line(group.characters))
    return "\n".join(lines) + "\n"


def _line(characters: str) -> str:
    """A group as a line; a line that begins with # would be a comment."""
    return characters[1:] + "#" if characters.startswith("#") else characters
