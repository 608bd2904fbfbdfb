"""The map of centers: labels, lines between pairs, fonts."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from ppocr_ext.centers.center_map import draw_center_map, fonts_for, project
from ppocr_ext.centers.center_summary import CenterPair
from ppocr_ext.characters.center_table import CenterTable

DRAWN_BY_NONE = "\U000e0fff"


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved."""
    saved: list[Figure] = []
    real = Figure.savefig

    def savefig(figure: Figure, *args: object, **options: object) -> None:
        saved.append(figure)
        real(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return saved


def table_of(characters: list[str]) -> CenterTable:
    count = len(characters)
    centers = np.random.default_rng(0).normal(size=[count, 6]).astype(np.float32)
    return CenterTable(np.arange(count), tuple(characters), centers, np.full(count, 20), np.ones(count))


def labels_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_every_character_is_written_and_pairs_are_joined(figures, tmp_path):
    table = table_of(["blank", "a", "b", "c", "d"])
    pairs = [CenterPair("a", "c", 1.0, 0.5), CenterPair("b", "c", 1.0, 0.6)]
    draw_center_map(tmp_path / "map.png", table, pairs, "4 character centers")
    (figure,) = figures
    axes = figure.axes[0]
    assert sorted(labels_of(figure)) == ["a", "b", "c", "d"]
    flat = dict(zip("abcd", project(table.centers[1:]), strict=True))
    joined = [np.asarray(line.get_xydata()) for line in axes.lines]
    np.testing.assert_allclose(joined, [[flat["a"], flat["c"]], [flat["b"], flat["c"]]])
    places = {text.get_text(): text.xy for text in axes.texts}
    for character, place in flat.items():
        np.testing.assert_allclose(places[character], place)
    colors = {text.get_text(): text.get_color() for text in axes.texts}
    assert colors["a"] == colors["b"] == colors["c"] != colors["d"]
    assert axes.get_title(loc="left") == "4 character centers"
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("entry", ["$$", "$x$", "$\\foo$", "_", "\\", "^"])
def test_an_entry_is_text_and_no_formula(figures, tmp_path, entry):
    draw_center_map(tmp_path / "map.png", table_of(["blank", "a", entry]), [CenterPair("a", entry, 1, 1)], "")
    assert sorted(labels_of(figures[0])) == sorted(["a", entry])


def test_what_cannot_be_seen_has_a_label(figures, tmp_path):
    names = [" ", "\u3000", "\u200b", "a b", f"ab{DRAWN_BY_NONE}"]
    draw_center_map(tmp_path / "map.png", table_of(["blank", *names]), [], "")
    assert labels_of(figures[0]) == [
        "U+0020",
        "U+3000",
        "U+200B",
        "U+0061 U+0020 U+0062",
        "U+0061 U+0062 U+E0FFF",
    ]


def test_a_font_of_placeholders_is_no_font():
    assert fonts_for([DRAWN_BY_NONE]) == {}
    assert not any("LastResort" in str(font.get_file()) for font in fonts_for(["未", "末"]).values())
