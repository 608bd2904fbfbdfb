"""Texts of random characters, and texts cut from the lines of text files.

Memory grows by 20 bytes for each line of a corpus, not with the text.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.errors import DataError
from ppocr_ext.io.resources import named_by_content
from ppocr_ext.limits import MAX_TEXT_BYTES, open_regular, read_text
from ppocr_ext.messages import shortened
from ppocr_ext.synth.lines.fonts import FontCoverage, FontFile
from ppocr_ext.synth.option_checks import check_options, is_range
from ppocr_ext.synth.seeded_random import SeededRandom

MAX_LENGTH = 200  # limit of characters of a line; no recogniser reads more
MAX_LISTED = 20  # limit of characters in a message


@dataclass(frozen=True)
class FrequentCharacters:
    """Characters that are more frequent than others, such as look-alikes.

    Args:
        characters: these characters, each with the same probability.
        share: above 0, at most 1. For random texts it is the share of characters that are drawn from these, and for a
            corpus the share of texts that have at least one of these.
    """

    characters: str
    share: float

    @classmethod
    def from_options(cls, named: str, share: float) -> FrequentCharacters:
        """Read the characters from a text or a file; white space is ignored."""
        file = Path(named)
        is_file = len(file.name) < 256 and file.is_file()  # a longer name raises an OSError
        text = read_text(file) if is_file else named
        return cls("".join(dict.fromkeys("".join(text.split()))), share)


@dataclass(frozen=True)
class RandomTexts:
    """Describe texts of random characters.

    Args:
        characters: the characters, with equal probabilities.
        length: fewest and most characters of a text.
        rich_in: characters that are more likely than the others.
        skip_undrawable: leave out characters that no font draws. Otherwise they are an error.
    """

    characters: str
    length: tuple[int, int]
    rich_in: FrequentCharacters | None = None
    skip_undrawable: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all that determines the texts, as plain values."""
        return asdict(self)

    def generator(self, fonts: Sequence[FontFile]) -> RandomTextGenerator:
        """Return the generator of the texts that ``fonts`` can draw.

        Raises:
            DataError: an option cannot be used (``bad_value``, ``undrawable_characters``). The message starts with it.
        """
        text = self.characters
        visible = isinstance(text, str) and all(c.isprintable() and not c.isspace() for c in text)
        check_options(
            (
                "characters",
                visible and 0 < len(text) == len(set(text)),
                text,
                'each visible character once, in quotes, such as "0123456789"',
            )
        )
        check_texts(self.length, self.rich_in)
        if unknown := set(self.rich_in.characters if self.rich_in else ()) - set(text):
            listed = shortened(sorted(unknown), MAX_LISTED, "")
            raise DataError(
                f"rich_in: {listed!r} are not among the characters of the texts.", code="bad_value"
            )
        return RandomTextGenerator(self, FontCoverage(fonts, text))


class RandomTextGenerator:
    """Generate random texts, each of which one font can draw.

    The first character is chosen from all characters. Then a font that has it is chosen, and the other characters
    from this font. So a character is not rare because few fonts have it.

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
        DataError: an option cannot be used (``bad_value``). The message starts with the option.
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


_SEGMENT = 400  # characters; a longer line is indexed in several parts
_OCCURRENCES = 200_000  # limit of places that are kept for a frequent character
_OPENING = ("Ps", "Pi")  # categories of Unicode: opening brackets and quotes
_CLOSING = ("Pe", "Pf", "Po")  # closing brackets and quotes, and punctuation marks


@dataclass(frozen=True)
class CorpusTexts:
    """Describe pieces of the lines of text files.

    A line is cut at characters that may not be drawn, and where no font draws both sides.

    Args:
        files: UTF-8, a text on each line.
        length: fewest and most characters of a piece.
        characters: characters that a piece may have; None for all that a font draws.
        spaces: whether a piece may have spaces. If not, lines are cut at spaces.
        rich_in: characters around which a share of the pieces is cut.
    """

    files: tuple[str, ...]
    length: tuple[int, int]
    characters: str | None = None
    spaces: bool = True
    rich_in: FrequentCharacters | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all that determines the texts, as plain values, with files by name and content.

        Raises:
            OSError: a file cannot be read.
        """
        plain = asdict(self)
        return {"corpus": [named_by_content(path) for path in plain.pop("files")], **plain}

    def generator(self, fonts: Sequence[FontFile]) -> CorpusTextGenerator:
        """Return the generator of the texts that ``fonts`` can draw.

        Raises:
            DataError: a file cannot be read, is not UTF-8, or has no text that can be used.
        """
        check_texts(self.length, self.rich_in)
        return CorpusTextGenerator(self, fonts)


class CorpusTextGenerator:
    """Generate pieces of a corpus from an index of the parts of its lines that one font draws.

    The attributes are those of :class:`~ppocr_ext.synth.lines.corpus.RandomTextGenerator`.
    """

    def __init__(self, texts: CorpusTexts, fonts: Sequence[FontFile]) -> None:
        self._texts = texts
        # For each part: number of its file, its first byte, its length in bytes.
        self._files = array("H")
        self._starts = array("q")
        self._sizes = array("i")
        rich = texts.rich_in.characters if texts.rich_in else ""
        self._places: dict[str, array[int]] = {character: array("q") for character in rich}
        lines = (line for path in texts.files for _, line in _lines(path, "characters of the corpus"))
        every_character = Counter(chain.from_iterable(lines))
        blanks = {character for character in every_character if character.isspace()}
        counts = Counter({c: n for c, n in every_character.items() if c.isprintable() and c not in blanks})
        candidates = [c for c in sorted(counts) if texts.characters is None or c in texts.characters]
        self.coverage = FontCoverage(fonts, candidates)
        self._common = {c for c in candidates if self.coverage.mask(c) == self.coverage.mask("")} | blanks
        used = self._index({c for c in candidates if self.coverage.mask(c)})
        self._frequent = [character for character, places in self._places.items() if places]
        if not self._starts:
            raise DataError(
                f"corpus: {', '.join(texts.files)}: no line has {texts.length[0]} characters together that can be "
                "drawn and are in the dictionary. Fix: other fonts or files, or a smaller length.",
                code="no_text",
            )
        self.characters: Sequence[str] = tuple(
            sorted(used - blanks) if texts.characters is None else texts.characters
        )
        self.notes = [*self.coverage.notes(), *self._notes(counts)]

    def text(self, rng: SeededRandom) -> str:
        """Return a text that at least one font draws."""
        rich_in = self._texts.rich_in
        length = self._texts.length
        if rich_in is None or not self._frequent or rng.random() >= rich_in.share:
            return cut(self._part(rng.randbelow(len(self._starts))), length, rng)
        character = rng.choice(self._frequent)
        text = self._part(rng.choice(self._places[character]))
        where = [i for i, each in enumerate(text) if each == character]
        return cut(text, length, rng, rng.choice(where))

    def _part(self, number: int) -> str:
        """Read a part again, with single spaces for white space."""
        with open_regular(self._texts.files[self._files[number]]) as stream:
            stream.seek(self._starts[number])
            return " ".join(stream.read(self._sizes[number]).decode("utf-8").split())

    def _index(self, allowed: set[str]) -> set[str]:
        """Index the parts that have only ``allowed`` characters; return the characters of all parts."""
        used: set[str] = set()
        space = r"\s" if self._texts.spaces else ""
        if not allowed:
            return used
        run_of_allowed = re.compile(f"[{space}{re.escape(''.join(sorted(allowed)))}]+")
        for file, path in enumerate(self._texts.files):
            for offset, line in _lines(path, "lines of the corpus"):
                before = 0  # characters up to `offset`; counting from here saves time if a file is a single long line
                for run in run_of_allowed.finditer(line):
                    for start, stop in self._drawable_parts(line, run.start(), run.end()):
                        offset += len(line[before:start].encode())
                        before = start
                        text = line[start:stop]
                        for character in self._places.keys() & set(text):
                            if len(self._places[character]) < _OCCURRENCES:
                                self._places[character].append(len(self._starts))
                        self._files.append(file)
                        self._starts.append(offset)
                        self._sizes.append(len(text.encode()))
                        used.update(text)
        return used

    def _drawable_parts(self, line: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a run that one font draws, of allowed length, without space at their ends."""
        fewest = self._texts.length[0]
        while start < stop:
            end = self._end_of_part(line, start, min(stop, start + _SEGMENT))
            text = line[start:end]
            if len(" ".join(text.split())) >= fewest:
                yield start + len(text) - len(text.lstrip()), start + len(text.rstrip())
            start = end

    def _end_of_part(self, line: str, start: int, stop: int) -> int:
        part = line[start:stop]
        if self._common.issuperset(part) or self.coverage.mask(" ".join(part.split())):
            return stop
        masks = accumulate((self.coverage.mask(character.strip()) for character in part), operator.and_)
        return next((place for place, mask in enumerate(masks, start) if not mask), stop)

    def _notes(self, counts: Counter[str]) -> Iterator[str]:
        permitted = self._texts.characters
        outside = [c for c, _ in counts.most_common() if permitted is not None and c not in permitted]
        causes = {"are not in the dictionary": outside, "are drawn by no font": self.coverage.missing()}
        for what, characters in causes.items():
            if characters:
                share = sum(counts[c] for c in characters) / counts.total()
                count = f"{len(characters)} characters of the corpus ({share:.2%} of the text)"
                yield f"{count} {what}; lines are cut there: {shortened(characters, MAX_LISTED, ' ')}"
        if absent := sorted(self._places.keys() - set(self._frequent)):
            yield f"no usable line of the corpus has {shortened(absent, MAX_LISTED, ' ')}"


def _lines(path: str, what: str) -> Iterator[tuple[int, str]]:
    """Yield the offset in bytes and the text of each line of a file.

    Args:
        path: the file.
        what: title of the progress bar, which is shown for large files.

    Raises:
        DataError: the file cannot be read, or a line is not UTF-8.
    """
    offset = 0
    number = 0
    try:
        size = Path(path).stat().st_size
        bar = tqdm(total=size, desc=what, unit="B", unit_scale=True, leave=False, disable=None, delay=2)
        with open_regular(path) as stream, bar:
            lines = iter(partial(stream.readline, MAX_TEXT_BYTES), b"")
            for number, raw in enumerate(lines, start=1):  # noqa: B007 - a message below names it
                yield offset, raw.decode("utf-8")
                offset += len(raw)
                bar.update(len(raw))
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"corpus: {path}: cannot be read ({reason}).", code="unreadable_file") from error
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            f"corpus: {path}:{number}: not UTF-8 (found byte 0x{byte:02x}). Fix: save the file as UTF-8.",
            code="not_utf8",
        ) from error


def cut(text: str, length: tuple[int, int], rng: SeededRandom, around: int | None = None) -> str:
    """Return a piece of ``text`` that starts and ends at word boundaries, if there are any.

    Args:
        text: at least ``length[0]`` characters, without space at its ends.
        length: fewest and most characters of the piece.
        rng: chooses the length and the place.
        around: index of a character that the piece must contain.

    Returns:
        The piece, without space at its ends. If a word is cut next to a space, the piece may have one character fewer
        than ``length[0]``.
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
    """Return True if ``text`` may be cut before the character at ``place``.

    It may not be cut inside a word, or between a bracket or a punctuation mark and its text.
    """
    before = text[place - 1]
    after = text[place]
    if " " in (before, after):
        return True
    if unicodedata.category(before) in _OPENING or unicodedata.category(after) in _CLOSING:
        return False
    # Letters of scripts with spaces form words. Chinese and Japanese characters, which are wide, do not.
    return not all(c.isascii() or unicodedata.east_asian_width(c) not in ("W", "F") for c in (before, after))
