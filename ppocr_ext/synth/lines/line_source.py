"""Images of text lines by split and index, and the options that describe them."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.registry import known_options
from ppocr_ext.synth.lines.corpus import (
    CorpusTextGenerator,
    CorpusTexts,
    FrequentCharacters,
    RandomTextGenerator,
    RandomTexts,
)
from ppocr_ext.synth.lines.fonts import FontFile, find_fonts
from ppocr_ext.synth.lines.painting import LineStyle, paint
from ppocr_ext.synth.option_checks import are_names, check_options
from ppocr_ext.synth.seeded_random import SeededRandom

TextGenerator = RandomTextGenerator | CorpusTextGenerator


@dataclass(frozen=True)
class LineSplit:
    """The texts of a split, and the fonts that draw them."""

    texts: RandomTexts | CorpusTexts
    fonts: tuple[FontFile, ...]


class LineSource:
    """Draw images of text lines, each of which depends only on seed, split and index.

    Args:
        splits: the splits by name, such as ``train``, ``val``, ``test``.
        style: the look of the lines.
        seed: another seed gives other images.

    Attributes:
        characters: the characters of all splits, each once, without the space. They can be the dictionary.
        max_length: the most characters of a line.
        notes: sentences about fonts that draw few characters, characters that no font draws, and the like.

    Raises:
        DataError: there is no text that can be drawn, or the style is impossible.
    """

    kind = "lines"

    def __init__(self, splits: Mapping[str, LineSplit], style: LineStyle, seed: int) -> None:
        style.check()
        self.style = style
        self.seed = seed
        self._splits = dict(splits)
        for name, split in splits.items():
            if not split.fonts:
                raise DataError(f"fonts: the split {name} has none.", code="no_fonts")
        # Equal splits share a generator, since making one takes time.
        generators = {split: split.texts.generator(split.fonts) for split in dict.fromkeys(splits.values())}
        self.max_length = max((split.texts.length[1] for split in splits.values()), default=0)
        self._generators = {name: generators[split] for name, split in self._splits.items()}
        # The order is that of the first split, if that has all characters.
        every = dict.fromkeys(c for generator in generators.values() for c in generator.characters)
        first = next(iter(generators.values()), None)
        ordered = first is None or len(first.characters) == len(every)
        self.characters: Sequence[str] = tuple(every if ordered else sorted(every))
        self.notes = tuple(
            dict.fromkeys(note for generator in generators.values() for note in generator.notes)
        )

    def to_json(self) -> dict[str, Any]:
        """Return all that determines the images except the seed, with fonts, texts and photos by name and content.

        Raises:
            DataError: a file of the corpus cannot be read.
        """
        named = {font: font.to_json() for font in {font for s in self._splits.values() for font in s.fonts}}
        splits = {
            name: {"texts": split.texts.to_json(), "fonts": [named[font] for font in split.fonts]}
            for name, split in self._splits.items()
        }
        return {"splits": splits, "style": self.style.to_json()}

    def label(self, stream: str, index: int) -> str:
        """Return the text of an image without drawing it.

        Args:
            stream: the name of a split, such as ``train``. Another text after it (``train/3``) gives other images.
            index: number of the image.
        """
        return self._generator(stream).text(SeededRandom(self.seed, stream, index))

    def image(self, stream: str, index: int) -> tuple[str, np.ndarray]:
        """Draw an image; return its text, and its pixels uint8 [height, width, 3], BGR."""
        text, font, rng = self._text_and_font(stream, index)
        return text, paint(text, font, self.style, rng)

    def font(self, stream: str, index: int) -> tuple[str, int]:
        """Return the file and the number of the font that an image is drawn with."""
        _, font, _ = self._text_and_font(stream, index)
        return font.path, font.index

    def _text_and_font(self, stream: str, index: int) -> tuple[str, FontFile, SeededRandom]:
        rng = SeededRandom(self.seed, stream, index)
        generator = self._generator(stream)
        text = generator.text(rng)
        return text, generator.coverage.choose(text, rng), rng

    def _generator(self, stream: str) -> TextGenerator:
        name = stream.partition("/")[0]
        if name not in self._generators:
            splits = ", ".join(self._generators)
            raise DataError(f"There is no split {name!r} (expected one of {splits}).", code="unknown_split")
        return self._generators[name]


@dataclass(frozen=True)
class LineOptions:
    """Describe the lines of one split as a command or a config gives them.

    Args:
        corpus: text files with a text on each line. Without files, texts have random characters.
        characters: characters to draw; None for digits and letters, or for all characters of a corpus.
        length: fewest and most characters of a line.
        rich_in: a text or a file with characters that are more frequent, and their share.
        skip_undrawable: leave out characters that no font draws. Otherwise they are an error.
        fonts: files, folders or packages; empty for the installed packages.
        style: a mapping with keys of :class:`LineStyle`. A range may be a single number, and ``photos`` is a folder.
    """

    corpus: Sequence[str] = ()
    characters: str | None = None
    length: tuple[int, int] = (2, 20)
    rich_in: tuple[str, float] | None = None
    skip_undrawable: bool = False
    fonts: Sequence[str] = ()
    style: Mapping[str, Any] = field(default_factory=dict)

    def texts(self, spaces: bool) -> RandomTexts | CorpusTexts:
        """Return the texts; ``spaces`` is True if texts of a corpus may have spaces.

        Raises:
            DataError: an option cannot be used (``bad_value``). The message starts with the option.
        """
        rich_in = self.rich_in
        skip = self.skip_undrawable
        pair = isinstance(rich_in, list | tuple) and len(rich_in) == 2 and are_names(rich_in[:1])
        check_options(
            ("characters", isinstance(self.characters, str | None), self.characters, "a text in quotes"),
            ("corpus", are_names(self.corpus), self.corpus, "files, such as [news.txt]"),
            ("fonts", are_names(self.fonts), self.fonts, "files, folders or packages, such as [mplfonts]"),
            ("rich_in", rich_in is None or pair, rich_in, 'characters and a share, such as ["0O", 0.4]'),
            ("skip_undrawable", isinstance(skip, bool), skip, "true or false"),
        )
        frequent = None if rich_in is None else FrequentCharacters.from_options(*rich_in)
        if self.corpus:
            return CorpusTexts(tuple(self.corpus), self.length, self.characters, spaces, frequent)
        characters = (self.characters or string.digits + string.ascii_letters).replace(" ", "")
        return RandomTexts(characters, self.length, frequent, skip)

    def make_source(self, mode: str, charset: Charset, seed: int) -> LineSource:
        """Return the source of a dataset. Its streams start with ``mode``; its default characters are the dictionary.

        Raises:
            DataError: an option cannot be used. The message starts with the option.
            ConfigError: a key of ``style`` is misspelt.
        """
        characters = "".join(visible(charset.characters)) if self.characters is None else self.characters
        texts = replace(self, characters=characters).texts(spaces=charset.has_space)
        check_options(
            ("style", isinstance(self.style, Mapping), self.style, "a mapping, such as {height: 32}")
        )
        try:
            style = LineStyle.from_options(known_options(LineStyle, self.style, "style"))
            style.check()
        except DataError as error:
            raise DataError(f"style.{error}", code=error.code) from error
        return LineSource({mode: LineSplit(texts, find_fonts(self.fonts))}, style, seed)


def visible(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of a dictionary that are one visible character, each once."""
    return tuple(dict.fromkeys(e for e in entries if len(e) == 1 and e.isprintable() and not e.isspace()))
