"""Fonts made for a test: each character is a bar of a height of its own."""

from __future__ import annotations

from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

UNITS = 1000


def bar(height: int, width: int = 400) -> object:
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for point in ((100, height), (100 + width, height), (100 + width, 0)):
        pen.lineTo(point)
    pen.closePath()
    return pen.glyph()


def make_font(
    path: Path,
    characters: str = "",
    *,
    family: str = "Bars",
    glyphs: dict[str, str] | None = None,
    empty: str = "",
    absent: str = "",
) -> Path:
    """Write a TrueType font.

    Args:
        path: the file.
        characters: each gets a glyph of its own, named as Unicode does.
        family: its name.
        glyphs: character to glyph name, for names of another kind and glyphs that are shared.
        empty: characters whose glyph has no ink.
        absent: characters whose glyph looks like that of missing characters.
    """
    named = {c: f"uni{ord(c):04X}" for c in (*characters, *empty, *absent)} | (glyphs or {})
    names = list(dict.fromkeys(named.values()))
    drawn = {name: bar(300 + 20 * number) for number, name in enumerate(names)}
    drawn |= {named[c]: TTGlyphPen(None).glyph() for c in empty}
    drawn |= {named[c]: bar(111) for c in absent}
    builder = FontBuilder(UNITS, isTTF=True)
    builder.setupGlyphOrder([".notdef", *names])
    builder.setupCharacterMap({ord(character): name for character, name in named.items()})
    builder.setupGlyf({".notdef": bar(111), **drawn})
    builder.setupHorizontalMetrics(dict.fromkeys([".notdef", *names], (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200)
    builder.setupPost()
    path.parent.mkdir(parents=True, exist_ok=True)
    builder.save(path)
    return path
