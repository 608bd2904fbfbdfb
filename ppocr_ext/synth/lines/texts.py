"""Random texts, and what a text is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ppocr_ext.errors import DataError
from ppocr_ext.messages import shortened
from ppocr_ext.synth.lines.coverage import Coverage
from ppocr_ext.synth.lines.fonts import FontFile
from ppocr_ext.synth.seeded_random import SeededRandom

MOST = 200  # characters of a line; no recogniser reads more


@dataclass(frozen=True)
class RichIn:
    """Characters that are to be frequent, such as look-alikes.

    Args:
        characters: which.
        share: from 0 to 1: of the characters of random texts, or of the texts cut from a corpus, each of
            which then has at least one. Every one of ``characters`` is as likely.
    """

    characters: str
    share: float

    def check(self) -> None:
        """Refuse a share that is none.

        Raises:
            DataError: see above.
        """
        if not self.characters or not 0 < self.share <= 1:
            raise DataError(
                f"Lines cannot be rich in {self.characters!r} with the share {self.share}. Give at least one "
                "character and a share above 0, at most 1."
            )


class Drawer(Protocol):
    """Texts that some fonts can draw."""

    @property
    def coverage(self) -> Coverage:
        """What each font rng."""
        ...

    @property
    def characters(self) -> Sequence[str]:
        """The dictionary of the texts, without the space."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences on what cannot be drawn."""
        ...

    def text(self, rng: SeededRandom) -> str:
        """A text that at least one font of ``coverage`` rng."""
        ...


class Texts(Protocol):
    """A supply of texts, before it is known which fonts there are."""

    @property
    def length(self) -> tuple[int, int]:
        """Return the fewest and the most characters of a text."""
        ...

    def to_json(self) -> dict[str, Any]:
        """What determines the texts, as plain values."""
        ...

    def drawer(self, fonts: Sequence[FontFile]) -> Drawer:
        """The texts that ``fonts`` can draw."""
        ...


@dataclass(frozen=True)
class RandomTexts:
    """Strings of random characters.

    Args:
        characters: each as likely to begin a text with.
        length: fewest and most characters.
        rich_in: characters that are more likely than the others.
        skip_undrawable: leave out characters that no font draws, rather than refuse them.
    """

    characters: str
    length: tuple[int, int]
    rich_in: RichIn | None = None
    skip_undrawable: bool = False

    def to_json(self) -> dict[str, Any]:
        """What determines the texts, as plain values."""
        return {
            "characters": self.characters,
            "length": list(self.length),
            "rich_in": rich_json(self.rich_in),
            "skip_undrawable": self.skip_undrawable,
        }

    def drawer(self, fonts: Sequence[FontFile]) -> RandomDrawer:
        """The texts that ``fonts`` can draw.

        Raises:
            DataError: characters are repeated, blank, or drawn by no font; a length is impossible.
        """
        check_length(self.length)
        repeated = sorted({c for c in self.characters if self.characters.count(c) > 1})
        blank = [c for c in self.characters if c.isspace() or not c.isprintable()]
        if not self.characters or repeated or blank:
            what = f"have {blank[:5]}" if blank else f"repeat {''.join(repeated[:20])!r}"
            what = what if self.characters else "are empty"
            raise DataError(f"The characters {what}. Give each visible character once.")
        if self.rich_in is not None:
            self.rich_in.check()
            unknown = sorted(set(self.rich_in.characters) - set(self.characters))
            if unknown:
                raise DataError(
                    f"--rich-in has {''.join(unknown[:20])!r}, which are not among the characters of the texts."
                )
        return RandomDrawer(self, Coverage(fonts, self.characters))


class RandomDrawer:
    """Random texts, each of characters that one font rng.

    One character of a text is drawn from all of them; a font that draws it then says what the others can
    be. So none is rare because few fonts have it.
    """

    def __init__(self, texts: RandomTexts, coverage: Coverage) -> None:
        self.coverage = coverage
        self.notes = font_notes(coverage)
        missing = coverage.missing()
        if missing and not texts.skip_undrawable:
            raise DataError(
                f"No font draws {listed(missing)}. Name a font that has them with --fonts, or leave them out with "
                "--skip-undrawable. (Scripts that need shaping, such as Arabic and Devanagari, cannot be drawn.)"
            )
        if missing:
            self.notes.append(f"no font draws {listed(missing)}; no line has them")
        self.characters = tuple(texts.characters)
        self._drawn = [c for c in texts.characters if coverage.mask(c)]
        if not self._drawn:
            raise DataError(f"The fonts draw none of {texts.characters[:40]!r}. Name others with --fonts.")
        self._length = texts.length
        self._of_font = [[c for c in self._drawn if c in drawn] for drawn in coverage.drawn]
        rich = set(texts.rich_in.characters) if texts.rich_in else set()
        self._share = texts.rich_in.share if texts.rich_in else 0.0
        self._rich = [c for c in self._drawn if c in rich]
        self._rich_of_font = [[c for c in self._rich if c in drawn] for drawn in coverage.drawn]

    def text(self, rng: SeededRandom) -> str:
        """A text that at least one font rng."""
        length = rng.whole(self._length)
        first = rng.choice(self._pick(rng, self._drawn, self._rich))
        font = rng.choice(self.coverage.numbers(self.coverage.mask(first)))
        rest = [
            rng.choice(self._pick(rng, self._of_font[font], self._rich_of_font[font]))
            for _ in range(length - 1)
        ]
        rest.insert(rng.randbelow(length), first)
        return "".join(rest)

    def _pick(self, rng: SeededRandom, every: list[str], rich: list[str]) -> list[str]:
        return rich if rng.random() < self._share and rich else every


def check_length(length: tuple[int, int]) -> None:
    """Refuse a range of lengths that is none.

    Raises:
        DataError: see above.
    """
    shortest, longest = length
    if not 1 <= shortest <= longest <= MOST:
        raise DataError(
            f"Length {shortest} to {longest} is impossible. Give the fewest and the most characters, 1 to {MOST}, "
            "such as 2 20."
        )


def font_notes(coverage: Coverage) -> list[str]:
    """A sentence on the fonts that draw few of the characters, where there are any."""
    poor = coverage.poor()
    if not poor:
        return []
    named = ", ".join(f"{font.name} ({count or 'none; not used'})" for font, count in poor)
    return [f"of {len(coverage.characters)} characters, these fonts draw less than half: {named}"]


def rich_json(rich_in: RichIn | None) -> dict[str, Any] | None:
    """Plain values of ``rich_in``."""
    return None if rich_in is None else {"characters": rich_in.characters, "share": rich_in.share}


def listed(characters: Sequence[str], most: int = 20) -> str:
    """The first of ``characters``, and how many there are more."""
    return shortened(characters, most, " ")
