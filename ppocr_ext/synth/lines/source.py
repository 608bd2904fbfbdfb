"""Lines of text by split and index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.synth.lines.fonts import FontFile
from ppocr_ext.synth.lines.painter import paint
from ppocr_ext.synth.lines.style import LineStyle
from ppocr_ext.synth.lines.texts import Drawer, Texts
from ppocr_ext.synth.seeded_random import SeededRandom


@dataclass(frozen=True)
class LineSplit:
    """What the lines of a split are made of: a supply of texts, and the fonts to draw them with."""

    texts: Texts
    fonts: tuple[FontFile, ...]


class LineSource:
    """Images of text lines, each determined by seed, split and index alone.

    Args:
        splits: by name, such as ``train``, ``val``, ``test``; any number.
        style: how the lines look.
        seed: images of two seeds differ.

    Attributes:
        notes: sentences on fonts that draw few characters, characters that no font draws, and the like.

    Raises:
        DataError: there is no text that can be drawn, or the style is impossible.
    """

    kind = "lines"

    def __init__(self, splits: Mapping[str, LineSplit], style: LineStyle, seed: int) -> None:
        style.check()
        self.style = style
        self.seed = seed
        self.max_length = max((split.texts.length[1] for split in splits.values()), default=0)
        self._splits = dict(splits)
        drawers: dict[LineSplit, Drawer] = {}
        for name, split in self._splits.items():
            if not split.fonts:
                raise DataError(f"The split {name} has no fonts.")
            if split not in drawers:  # splits that are the same share what is known of their texts
                drawers[split] = split.texts.drawer(split.fonts)
        self._drawers = {name: drawers[split] for name, split in self._splits.items()}
        self.notes = tuple(dict.fromkeys(note for drawer in drawers.values() for note in drawer.notes))

    @property
    def characters(self) -> tuple[str, ...]:
        """The characters of all splits, each once, without the space: a dictionary for them."""
        every = [character for drawer in self._drawers.values() for character in drawer.characters]
        distinct = tuple(dict.fromkeys(every))
        first = next(iter(self._drawers.values())).characters
        return distinct if len(distinct) == len(first) else tuple(sorted(distinct))

    def to_json(self) -> dict[str, Any]:
        """All that determines the images, as plain values; fonts, texts and photos by name and content."""
        named: dict[FontFile, str] = {}
        for split in self._splits.values():
            named.update((font, font.to_json()) for font in split.fonts if font not in named)
        splits = {
            name: {"texts": split.texts.to_json(), "fonts": [named[font] for font in split.fonts]}
            for name, split in self._splits.items()
        }
        return {"splits": splits, "style": self.style.to_json()}

    def label(self, stream: str, index: int) -> str:
        """The text of an image, without drawing it.

        Args:
            stream: the name of a split, or that and ``/`` and anything (``train/3``) for other images of it.
            index: number of the image.
        """
        return self._drawer(stream).text(SeededRandom(self.seed, stream, index))

    def image(self, stream: str, index: int) -> tuple[str, np.ndarray]:
        """Text and image (uint8 [height, width, 3], blue-green-red)."""
        rng, drawer = SeededRandom(self.seed, stream, index), self._drawer(stream)
        text = drawer.text(rng)
        return text, paint(text, drawer.coverage.choose(text, rng), self.style, rng)

    def font(self, stream: str, index: int) -> tuple[str, int]:
        """File and number of the font that an image is drawn with."""
        rng, drawer = SeededRandom(self.seed, stream, index), self._drawer(stream)
        font = drawer.coverage.choose(drawer.text(rng), rng)
        return font.path, font.index

    def _drawer(self, stream: str) -> Drawer:
        name = stream.partition("/")[0]
        if name not in self._drawers:
            raise DataError(f"There is no split {name!r}. Splits: {', '.join(self._drawers)}.")
        return self._drawers[name]
