"""Draw images of text lines with fonts, from a corpus or from random characters; imports no Paddle.

Example::

    fonts = split_fonts(find_fonts(["mplfonts", "fonts"]), {"train": 0.8, "val": 0.1, "test": 0.1})
    texts = RandomTexts("0123456789已己巳", (2, 12), rich_in=FrequentCharacters("已己巳", 0.4))
    source = LineSource({name: LineSplit(texts, some) for name, some in fonts.items()}, LineStyle(), seed=1)
    text, image = source.image("test", 0)
"""

from ppocr_ext.synth.lines.corpus import CorpusTexts, FrequentCharacters, RandomTexts
from ppocr_ext.synth.lines.fonts import FontFile, find_fonts, split_fonts
from ppocr_ext.synth.lines.line_source import LineSource, LineSplit
from ppocr_ext.synth.lines.painting import LineStyle, find_photos

__all__ = [
    "CorpusTexts",
    "FontFile",
    "FrequentCharacters",
    "LineSource",
    "LineSplit",
    "LineStyle",
    "RandomTexts",
    "find_fonts",
    "find_photos",
    "split_fonts",
]
