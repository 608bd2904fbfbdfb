"""Which fonts are found, what they draw, and how they are divided."""

from __future__ import annotations

import numpy as np
import pytest
from error_codes import raises_code
from fontTools.ttLib import TTCollection, TTFont
from PIL import ImageFont
from small_fonts import make_font

from ppocr_ext.errors import DataError
from ppocr_ext.synth.lines.fonts import FontCoverage, FontFile, drawable, find_fonts, split_fonts
from ppocr_ext.synth.lines.painting import set_line
from ppocr_ext.synth.seeded_random import SeededRandom


def only(path) -> FontFile:
    (font,) = find_fonts([path])
    return font


def test_fonts_are_found_in_files_folders_and_packages(tmp_path):
    one = make_font(tmp_path / "a" / "one.ttf", "ab", family="One")
    make_font(tmp_path / "a" / "deep" / "two.TTF", "ab", family="Two")
    (tmp_path / "a" / "readme.txt").write_text("no font")
    assert [(f.name, f.family) for f in find_fonts([tmp_path / "a"])] == [
        ("one.ttf", "One"),
        ("two.TTF", "Two"),
    ]
    assert len(find_fonts([one, tmp_path / "a", one])) == 2
    of_matplotlib = {font.name for font in find_fonts(["matplotlib"])}
    assert "DejaVuSans.ttf" in of_matplotlib
    assert not any(name.startswith(("cm", "LastResort", "STIXSiz")) for name in of_matplotlib)
    assert of_matplotlib <= {font.name for font in find_fonts()}


def test_every_font_of_a_collection_is_found(tmp_path):
    members = [make_font(tmp_path / f"{n}.ttf", c, family=n) for n, c in (("A", "abc"), ("B", "xyz"))]
    collection = TTCollection()
    collection.fonts = [TTFont(path) for path in members]
    collection.save(tmp_path / "both.ttc")
    first, second = find_fonts([tmp_path / "both.ttc"])
    assert (first.family, second.family, second.index) == ("A", "B", 1)
    assert drawable(first, "abxy") == set("ab") and drawable(second, "abxy") == set("xy")


@pytest.mark.parametrize(("content", "code"), [(None, "missing_file"), (b"not a font", "bad_font")])
def test_what_is_no_font_is_named(tmp_path, content, code):
    path = tmp_path / "broken.ttf"
    if content is not None:
        path.write_bytes(content)
    with raises_code(DataError, code, "broken.ttf"):
        find_fonts([path])
    path.unlink(missing_ok=True)
    with raises_code(DataError, "no_fonts", str(tmp_path)):  # a folder without fonts
        find_fonts([tmp_path])


def test_only_characters_with_a_glyph_of_their_own_are_drawn(tmp_path):
    path = make_font(
        tmp_path / "f.ttf",
        "ab漢",
        empty="e",
        absent="n",
        glyphs={"$": "arrowright", **dict.fromkeys("αβγδεζηθι", "placeholder")},
    )
    assert drawable(only(path), "ab漢enxyz$αι") == set("ab漢")


@pytest.mark.parametrize("kind", ["arrowup", "integraldisplay"])
def test_a_font_with_symbols_in_place_of_letters_draws_nothing(tmp_path, kind):
    symbols = {letter: f"{kind}{'x' * number}" for number, letter in enumerate("abcdef")}
    path = make_font(tmp_path / "symbols.ttf", "ghi!", glyphs=symbols)
    assert drawable(only(path), "abcdefghi!") == set()


def test_letters_that_need_shaping_are_not_drawn():
    coverage = FontCoverage(find_fonts(["matplotlib"]), "aשع")  # DejaVu has Hebrew and Arabic glyphs
    assert coverage.missing() == ["ש", "ع"]


def test_a_text_is_drawn_with_a_font_that_has_all_of_it(tmp_path):
    fonts = [
        only(make_font(tmp_path / f"{n}.ttf", c, family=n))
        for n, c in (("A", "abc"), ("B", "bcd"), ("C", "c"))
    ]
    coverage = FontCoverage(fonts, "abcd")
    chosen = {coverage.choose("b c", SeededRandom(0, "x", index)).name for index in range(40)}
    assert chosen == {"A.ttf", "B.ttf"}
    assert coverage.mask("ad") == 0
    (note,) = coverage.notes()
    assert note.endswith(": C.ttf (1)")


def families(fonts):
    return {font.family for font in fonts}


def test_a_split_of_the_fonts_keeps_families_together():
    fonts = [FontFile(f"{family}-{weight}.ttf", 0, family) for family in "ABCDEFGHIJ" for weight in "xyz"]
    parts = split_fonts(fonts, {"train": 0.7, "val": 0.2, "test": 0.1}, seed=3)
    assert [len(families(part)) for part in parts.values()] == [7, 2, 1]
    assert sum(map(len, parts.values())) == 30
    assert not families(parts["train"]) & families(parts["val"]) | families(parts["val"]) & families(
        parts["test"]
    )
    assert split_fonts(fonts, {"train": 0.7, "val": 0.2, "test": 0.1}, seed=3) == parts
    others = {tuple(split_fonts(fonts, {"a": 1, "b": 1}, seed)["a"]) for seed in range(5)}
    assert len(others) > 1


@pytest.fixture
def dejavu():
    return next(f for f in find_fonts(["matplotlib"]) if f.name == "DejaVuSans.ttf")


def test_a_set_line_is_what_the_font_draws(dejavu):
    font = dejavu
    face = ImageFont.truetype(font.path, 32, layout_engine=ImageFont.Layout.BASIC)
    for text in ("A", "W", "jé", "Hill"):
        mask = face.getmask(text)
        whole = np.array(list(mask), np.uint8).reshape(mask.size[::-1])
        rows, columns = np.flatnonzero(whole.any(1)), np.flatnonzero(whole.any(0))
        expected = whole[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        ours = set_line(text, font, 32, spacing=0)
        assert ours.shape[0] == expected.shape[0]
        assert abs(ours.shape[1] - expected.shape[1]) <= len(text)  # letters start at whole pixels
        if len(text) == 1:
            assert (ours == expected).all()


def test_spacing_widens_a_line_but_does_not_part_an_accent_from_its_letter(dejavu):
    widths = [set_line("abc", dejavu, 30, spacing).shape[1] for spacing in (0, 5, 10)]
    assert widths[1] - widths[0] == 10 and widths[2] - widths[1] == 10
    tight, wide = (set_line("e\u0301", dejavu, 40, spacing).shape for spacing in (0, 20))
    assert tight == wide


def test_each_split_gets_a_family_or_it_is_refused():
    fonts = [FontFile(f"{family}.ttf", 0, family) for family in "ABC"]
    assert [len(part) for part in split_fonts(fonts, {"a": 100, "b": 1, "c": 1}).values()] == [1, 1, 1]
    for shares, code in (({"a": 1, "b": 1, "c": 1, "d": 1}, "no_fonts"), ({"a": 1, "b": 0}, "bad_value")):
        with raises_code(DataError, code):
            split_fonts(fonts, shares)
