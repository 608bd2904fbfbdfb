"""Where a text may be cut: between words, and between the characters of scripts without spaces."""

from __future__ import annotations

import unicodedata

from ppocr_ext.synth.seeded_random import SeededRandom

_OPENING = ("Ps", "Pi")  # categories of Unicode: opening brackets and quotes
_CLOSING = ("Pe", "Pf", "Po")  # closing ones; points, commas and the like


def cut(text: str, length: tuple[int, int], rng: SeededRandom, around: int | None = None) -> str:
    """A piece of ``text`` that starts and ends at sensible places, where there are any.

    Args:
        text: without space at its ends; at least ``length[0]`` characters.
        length: fewest and most characters of the piece.
        rng: chooses the length and the place.
        around: the number of a character that the piece must have.

    Returns:
        The piece, without space at its ends; a hard cut in a word may leave it one character shorter than
        the fewest, where it fell beside a space.
    """
    fewest = min(length[0], len(text))
    most = min(rng.whole((fewest, max(fewest, length[1]))), len(text))
    breaks = [i for i in range(1, len(text)) if is_break(text, i)]
    starts = [i for i in (0, *breaks) if text[i] != " " and len(text) - i >= fewest]
    if around is not None:
        starts = [i for i in starts if i <= around < i + most]
    start = rng.choice(starts) if starts else max(0, min(len(text) - most, (around or 0) - most // 2))
    least = max(start + fewest, 0 if around is None else around + 1)
    ends = [i for i in (*breaks, len(text)) if least <= i <= start + length[1] and text[i - 1] != " "]
    within = [i for i in ends if i <= start + most]
    end = within[-1] if within else next(iter(ends), start + most)
    return text[start:end].strip()


def is_break(text: str, place: int) -> bool:
    """Whether ``text`` may be cut before the character number ``place``.

    Not inside a word, nor between a bracket or a stop and what it belongs to.
    """
    before, after = text[place - 1], text[place]
    if " " in (before, after):
        return True
    if unicodedata.category(before) in _OPENING or unicodedata.category(after) in _CLOSING:
        return False
    return not (_joins(before) and _joins(after))


def _joins(character: str) -> bool:
    """Whether a character makes a word with its neighbours, as those of scripts with spaces do."""
    return character.isascii() or unicodedata.east_asian_width(character) not in ("W", "F")
