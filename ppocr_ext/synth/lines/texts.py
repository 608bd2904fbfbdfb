"""Random texts, and what all generators of texts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.errors import DataError
from ppocr_ext.limits import read_text
from ppocr_ext.messages import shortened
from ppocr_ext.synth.lines.fonts import FontCoverage, FontFile
from ppocr_ext.synth.option_checks import check_options, is_range
from ppocr_ext.synth.seeded_random import SeededRandom

MAX_LENGTH = 200  # characters of a line; no recogniser reads more
MAX_LISTED = 20  # characters named in a message


@dataclass(frozen=True)
class FrequentCharacters:
    """Name characters that are more frequent than the others, such as look-alikes.

    Args:
        characters: these characters, each with the same probability.
        share: above 0, at most 1: of the characters of random texts, or of the texts cut from a corpus, each of
            which then has at least one.
    """

    characters: str
    share: float

    @classmethod
    def from_options(cls, named: str, share: float) -> FrequentCharacters:
        """Read the characters from a text or a file; white space does not count."""
        file = Path(named)
        is_file = len(file.name) < 256 and file.is_file()  # a longer name is an OSError
        text = read_text(file) if is_file else named
        return cls("".join(dict.fromkeys("".join(text.split()))), share)


@dataclass(frozen=True)
class RandomTexts:
    """Describe strings of random characters.

    Args:
        characters: each with the same probability to begin a text.
        length: the smallest and the largest number of characters.
        rich_in: characters that are more likely than the others.
        skip_undrawable: leave out characters that no font draws; otherwise they are an error.
    """

    characters: str
    length: tuple[int, int]
    rich_in: FrequentCharacters | None = None
    skip_undrawable: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return everything that determines the texts, as plain values."""
        return asdict(self)

    def generator(self, fonts: Sequence[FontFile]) -> RandomTextGenerator:
        """Return the generator of the texts that ``fonts`` can draw.

        Raises:
            DataError: ``bad_value`` or ``undrawable_characters``; the message starts with the option.
        """
        text = self.characters
        visible = isinstance(text, str) and all(c.isprintable() and not c.isspace() for c in text)
        once = visible and 0 < len(text) == len(set(text))
        check_options(
            ("characters", once, text, 'each visible character once, in quotes, such as "0123456789"')
        )
        check_texts(self.length, self.rich_in)
        unknown = set(self.rich_in.characters if self.rich_in else ()) - set(text)
        if unknown:
            listed = shortened(sorted(unknown), MAX_LISTED, "")
            raise DataError(
                f"rich_in: {listed!r} are not among the characters of the texts.", code="bad_value"
            )
        return RandomTextGenerator(self, FontCoverage(fonts, text))


class RandomTextGenerator:
    """Generate random texts, each of characters that one font draws.

    One character of a text is drawn from all of them; a font that has it then limits the other characters. So
    no character is rare because few fonts have it.

    Attributes:
        coverage: the characters that each font draws.
        characters: the dictionary of the texts, without the space.
        notes: sentences about characters that cannot be drawn.
    """

    def __init__(self, texts: RandomTexts, coverage: FontCoverage) -> None:
        self.coverage = coverage
        self.notes = coverage.notes()
        missing = shortened(coverage.missing(), MAX_LISTED, " ")
        self._drawn = [c for c in texts.characters if coverage.mask(c)]
        if missing and not (texts.skip_undrawable and self._drawn):
            raise DataError(
                f"characters: no font draws {missing}. Fix: add a font that has them (fonts), or leave them out "
                "(skip_undrawable).\nScripts that need shaping, such as Arabic and Devanagari, cannot be drawn.",
                code="undrawable_characters",
            )
        if missing:
            self.notes.append(f"no font draws {missing}; they are left out")
        self.characters: Sequence[str] = tuple(texts.characters)
        self._length = texts.length
        self._of_font = [[c for c in self._drawn if c in drawn] for drawn in coverage.drawn]
        rich = set(texts.rich_in.characters) if texts.rich_in else set()
        self._share = texts.rich_in.share if texts.rich_in else 0.0
        self._rich = [c for c in self._drawn if c in rich]
        self._rich_of_font = [[c for c in self._rich if c in drawn] for drawn in coverage.drawn]

    def text(self, rng: SeededRandom) -> str:
        """Return a text that at least one font draws."""
        length = rng.whole(self._length)
        first = self._character(rng, self._drawn, self._rich)
        font = rng.choice(self.coverage.numbers(self.coverage.mask(first)))
        rest = [
            self._character(rng, self._of_font[font], self._rich_of_font[font]) for _ in range(length - 1)
        ]
        rest.insert(rng.randbelow(length), first)
        return "".join(rest)

    def _character(self, rng: SeededRandom, every: list[str], rich: list[str]) -> str:
        return rng.choice(rich if rng.random() < self._share and rich else every)


def check_texts(length: tuple[int, int], rich_in: FrequentCharacters | None) -> None:
    """Check the length and the frequent characters of texts.

    Raises:
        DataError: ``bad_value``; the message starts with the option.
    """
    share = rich_in is None or (
        bool(rich_in.characters) and is_range((rich_in.share, 1), 0, 1) and rich_in.share > 0
    )
    check_options(
        (
            "length",
            is_range(length, 1, MAX_LENGTH, (int,)),
            length,
            f"the fewest and the most characters, from 1 to {MAX_LENGTH}, such as 2 20",
        ),
        ("rich_in", share, rich_in, "characters, and a share above 0, at most 1"),
    )
