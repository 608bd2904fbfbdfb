"""Texts cut from the lines of text files. Memory grows by 20 bytes a line, not with the text."""

from __future__ import annotations

import mmap
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content
from ppocr_ext.synth.lines.coverage import Coverage
from ppocr_ext.synth.lines.cutting import cut
from ppocr_ext.synth.lines.fonts import FontFile
from ppocr_ext.synth.lines.texts import RichIn, check_length, font_notes, listed, rich_json
from ppocr_ext.synth.seeded_random import SeededRandom

_SEGMENT = 400  # characters; a longer line is indexed in several parts
_OCCURRENCES = 200_000  # places of a frequent character that are kept


@dataclass(frozen=True)
class CorpusTexts:
    """Pieces of the lines of text files.

    A line is cut where it has a character that may not be drawn, and where the fonts change that draw it.

    Args:
        files: UTF-8, a text each line.
        length: fewest and most characters of a piece.
        characters: those that a piece may have; None for all that a font rng.
        spaces: whether a piece may have spaces; else lines are cut at them.
        rich_in: characters that a share of the pieces is cut around.
    """

    files: tuple[str, ...]
    length: tuple[int, int]
    characters: str | None = None
    spaces: bool = True
    rich_in: RichIn | None = None

    def to_json(self) -> dict[str, Any]:
        """What determines the texts, as plain values; files by name and content.

        Raises:
            DataError: a file cannot be read.
        """
        return {
            "corpus": [_named(path) for path in self.files],
            "length": list(self.length),
            "characters": self.characters,
            "spaces": self.spaces,
            "rich_in": rich_json(self.rich_in),
        }

    def drawer(self, fonts: Sequence[FontFile]) -> CorpusDrawer:
        """The texts that ``fonts`` can draw.

        Raises:
            DataError: a file cannot be read, is not UTF-8, or has no text that can be used.
        """
        check_length(self.length)
        if self.rich_in is not None:
            self.rich_in.check()
        return CorpusDrawer(self, fonts)


class CorpusDrawer:
    """The index of the usable parts of a corpus."""

    def __init__(self, texts: CorpusTexts, fonts: Sequence[FontFile]) -> None:
        self._texts = texts
        self._files = _MappedFiles(texts.files)
        found = self._count_characters()
        blanks = frozenset(character for character in found if character.isspace())
        for unseen in [c for c in found if c in blanks or not c.isprintable()]:
            del found[unseen]
        wanted = [c for c in sorted(found) if texts.characters is None or c in texts.characters]
        self.coverage = Coverage(fonts, wanted)
        self._allowed = {c for c in wanted if self.coverage.mask(c)}
        every = self.coverage.mask("")
        self._common = {c for c in wanted if self.coverage.mask(c) == every} | blanks
        self._parts = _Parts(texts.rich_in.characters if texts.rich_in else "")
        self._index()
        if not self._parts:
            raise DataError(
                f"{', '.join(texts.files)}: no line has {texts.length[0]} characters together that can be drawn and "
                "are in the dictionary. Name other fonts or files, or a smaller --length."
            )
        used = self._parts.characters - blanks
        self.characters = tuple(sorted(used)) if texts.characters is None else tuple(texts.characters)
        self.notes = self._notes(found)

    def text(self, rng: SeededRandom) -> str:
        """A text that at least one font rng."""
        rich_in = self._texts.rich_in
        present = self._parts.rich
        if rich_in is None or not present or rng.random() >= rich_in.share:
            return cut(self._part(rng.randbelow(len(self._parts))), self._texts.length, rng)
        character = rng.choice(present)
        text = self._part(rng.choice(self._parts.places[character]))
        where = [i for i, found in enumerate(text) if found == character]
        return cut(text, self._texts.length, rng, rng.choice(where))

    def _part(self, number: int) -> str:
        file, start, size = self._parts.at(number)
        return self._files.read(file, start, size)

    def _count_characters(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for file in range(len(self._texts.files)):
            for _, line in self._files.lines(file, "characters of the corpus"):
                found.update(line)
        return found

    def _index(self) -> None:
        if not self._allowed:
            return
        space = r"\s" if self._texts.spaces else ""
        allowed = re.compile(f"[{space}{re.escape(''.join(sorted(self._allowed)))}]+")
        for file in range(len(self._texts.files)):
            for offset, line in self._files.lines(file, "lines of the corpus"):
                before = 0  # characters of the line that ``offset`` is behind: a file may be a single line
                for run in allowed.finditer(line):
                    for start, stop in self._drawable_parts(line, run.start(), run.end()):
                        offset += len(line[before:start].encode())
                        before = start
                        self._parts.add(file, offset, line[start:stop])

    def _drawable_parts(self, line: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Parts of a run that one font draws, long enough and not too long, without space at their ends."""
        fewest = self._texts.length[0]
        while start < stop:
            end = self._end_of_part(line, start, min(stop, start + _SEGMENT))
            text = line[start:end]
            if len(text) >= fewest and len(" ".join(text.split())) >= fewest:
                yield start + len(text) - len(text.lstrip()), start + len(text.rstrip())
            start = end

    def _end_of_part(self, line: str, start: int, stop: int) -> int:
        part = line[start:stop]
        if self._common.issuperset(part) or self.coverage.mask(" ".join(part.split())):
            return stop
        mask = self.coverage.mask("")
        for place in range(start, stop):
            if not line[place].isspace():
                mask &= self.coverage.mask(line[place])
            if not mask:
                return place
        return stop

    def _notes(self, found: Counter[str]) -> list[str]:
        notes = font_notes(self.coverage)
        permitted = self._texts.characters
        outside = [c for c, _ in found.most_common() if permitted is not None and c not in permitted]
        for what, characters in (
            ("are not in the dictionary", outside),
            ("are drawn by no font", self.coverage.missing()),
        ):
            if characters:
                share = sum(found[c] for c in characters) / found.total()
                notes.append(
                    f"{len(characters)} characters of the corpus ({share:.2%} of the text) {what}; lines are cut "
                    f"there: {listed(characters)}"
                )
        absent = set(self._texts.rich_in.characters if self._texts.rich_in else "") - set(self._parts.rich)
        if absent:
            notes.append(f"no usable line of the corpus has {listed(sorted(absent))}")
        return notes


class _Parts:
    """Where the usable parts lie, and which of them have the characters that are to be frequent."""

    def __init__(self, rich: str) -> None:
        self._files, self._starts, self._sizes = array("H"), array("q"), array("i")
        self.characters: set[str] = set()
        self.places: dict[str, array[int]] = {character: array("q") for character in dict.fromkeys(rich)}

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def rich(self) -> list[str]:
        """The frequent characters that there are."""
        return [character for character, places in self.places.items() if places]

    def at(self, number: int) -> tuple[int, int, int]:
        """File, first byte and bytes of a part."""
        return self._files[number], self._starts[number], self._sizes[number]

    def add(self, file: int, offset: int, text: str) -> None:
        """Note a part that begins at byte ``offset``."""
        for character in self.places.keys() & set(text):
            if len(self.places[character]) < _OCCURRENCES:
                self.places[character].append(len(self))
        self._files.append(file)
        self._starts.append(offset)
        self._sizes.append(len(text.encode()))
        self.characters.update(text)


class _MappedFiles:
    """Text files, read where they are needed; a process that gets a copy opens them anew."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._maps: dict[int, mmap.mmap] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_paths": self._paths, "_maps": {}}

    def read(self, file: int, start: int, size: int) -> str:
        """Some bytes of a file as text, with single spaces for white space."""
        if file not in self._maps:
            with Path(self._paths[file]).open("rb") as stream:
                self._maps[file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return " ".join(self._maps[file][start : start + size].decode("utf-8").split())

    def lines(self, file: int, what: str) -> Iterator[tuple[int, str]]:
        """First byte and text of each line.

        Args:
            file: which.
            what: name of the progress bar, which is shown where it takes long.

        Raises:
            DataError: the file cannot be read, or a line is not UTF-8.
        """
        path = Path(self._paths[file])
        offset = 0
        try:
            with path.open("rb") as stream, _bar(path, what) as bar:
                for number, raw in enumerate(stream, start=1):  # noqa: B007 - a message below names it
                    yield offset, raw.decode("utf-8")
                    offset += len(raw)
                    bar.update(len(raw))
        except OSError as error:
            raise DataError(f"{path}: the corpus cannot be read: {error.strerror or error}.") from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{number}: not UTF-8: byte 0x{raw[error.start]:02x}. Save the corpus as UTF-8."
            ) from error


def _bar(path: Path, what: str) -> tqdm:
    return tqdm(
        total=path.stat().st_size, desc=what, unit="B", unit_scale=True, leave=False, disable=None, delay=2
    )


def _named(path: str) -> str:
    try:
        return named_by_content(path)
    except OSError as error:
        raise DataError(f"{path}: the corpus cannot be read: {error.strerror or error}.") from error
