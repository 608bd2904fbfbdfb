"""Look-alikes from glyphs: against a plain loop, and the groups that pairs make."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.characters.look_alikes import read_groups
from ppocr_ext.errors import DataError
from ppocr_ext.synth.glyph_similarity import (
    GRID,
    GlyphMaps,
    Group,
    SimilarPair,
    draw_maps,
    groups_of,
    similar_pairs,
    to_file,
)
from ppocr_ext.synth.lines.fonts import find_fonts

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SANS, SERIF = str(FONTS / "DejaVuSans.ttf"), str(FONTS / "DejaVuSerif.ttf")
LATIN = tuple("0OoQl1I|5Ss8B.,MWiАA")  # one of the last two is Cyrillic


@pytest.fixture(scope="module")
def maps() -> list[GlyphMaps]:
    return draw_maps(find_fonts([SANS, SERIF]), LATIN)


def naive(maps: list[GlyphMaps], one: int, other: int) -> float:
    """The similarity, shift by shift and font by font, by correlation as numpy has it."""

    def best(rows: np.ndarray, moved: np.ndarray) -> float:
        here, there = (m.astype(np.float64).reshape(GRID, GRID) for m in (rows, moved))
        shifted = [np.roll(here, (y, x), (0, 1)).ravel() for y in (-1, 0, 1) for x in (-1, 0, 1)]
        return max(float(s @ there.ravel() / np.linalg.norm(s) / np.linalg.norm(there)) for s in shifted)

    placed, filled = [], []
    for font in maps:
        if not (font.drawn[one] and font.drawn[other]):
            continue
        sides = [sorted((side[one], side[other])) for side in (font.height, font.width)]
        ratio = np.prod([small / large for small, large in sides])
        offset = abs(float(font.middle[one] - font.middle[other]))
        placed.append(best(font.placed[one], font.placed[other]))
        filled.append(best(font.filled[one], font.filled[other]) * ratio**0.1 * (1 - 0.5 * offset))
    return min(1.0, max(np.mean(placed), np.mean(filled)))


@pytest.mark.parametrize("block", [256, 7])
def test_the_similarity_is_that_of_a_plain_loop(
    maps: list[GlyphMaps], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppocr_ext.synth.glyph_similarity._BLOCK", block)
    found = {(p.first, p.second): p.similarity for p in similar_pairs(maps, 0.6)}
    every = {pair: naive(maps, *pair) for pair in combinations(range(len(LATIN)), 2)}
    assert found.keys() == {pair for pair, value in every.items() if value >= 0.6}
    assert len(found) > 10
    for pair, value in found.items():
        assert value == pytest.approx(every[pair], abs=1e-5)


def test_what_people_confuse_is_alike_and_most_alike_comes_first(maps: list[GlyphMaps]) -> None:
    pairs = similar_pairs(maps, 0.5)
    found = {LATIN[p.first] + LATIN[p.second]: p.similarity for p in pairs}
    assert found["0O"] > 0.8 and found["l1"] > 0.75 and found["Ss"] > 0.75
    assert found["Oo"] < 1.0 and "MW" not in {pair for pair, value in found.items() if value > 0.8}
    assert [p.similarity for p in pairs] == sorted((p.similarity for p in pairs), reverse=True)


def test_a_pair_counts_in_the_fonts_that_draw_both(maps: list[GlyphMaps]) -> None:
    sans, serif = maps
    zero, o = LATIN.index("0"), LATIN.index("O")
    only_in_sans = serif.drawn.copy()
    only_in_sans[zero] = False
    poor = replace(serif, drawn=only_in_sans, placed=serif.placed.copy(), filled=serif.filled.copy())
    poor.placed[zero] = poor.filled[zero] = 0
    found = {(p.first, p.second): p.similarity for p in similar_pairs([sans, poor], 0.5)}
    assert found[zero, o] == pytest.approx(naive([sans], zero, o), abs=1e-5)


def test_fonts_that_draw_nothing_are_left_out_or_refused() -> None:
    fonts = find_fonts([SANS])
    with raises_code(DataError, "undrawable_characters", "DejaVuSans.ttf"):
        draw_maps(fonts, ("未", "末"))
    (font,) = draw_maps(fonts, ("a", "b", "未"))
    assert font.drawn.tolist() == [True, True, False]
    assert not font.placed[2].any()


def pairs_of(*similarities: tuple[int, int, float]) -> list[SimilarPair]:
    pairs = [SimilarPair(first, second, value, False) for first, second, value in similarities]
    return sorted(pairs, key=lambda pair: -pair.similarity)


def test_a_clique_is_one_group_and_groups_do_not_chain() -> None:
    chain = [(0, 1, 0.95), (1, 2, 0.9), (2, 3, 0.85)]
    assert groups_of(pairs_of(*chain), "abcd") == [Group("ab", 0.95), Group("bc", 0.9), Group("cd", 0.85)]
    assert groups_of(pairs_of(*chain, (0, 2, 0.8)), "abcd") == [Group("abc", 0.95), Group("cd", 0.85)]


@pytest.mark.parametrize("seed", range(2))
def test_groups_hold_all_pairs_and_no_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen = [pair for pair in combinations(range(12), 2) if rng.random() < 0.5]
    pairs = pairs_of(*((a, b, float(rng.uniform(0.5, 1))) for a, b in chosen))
    groups = groups_of(pairs, "abcdefghijkl")
    held = {pair for group in groups for pair in combinations(group.characters, 2)}
    assert held == {("abcdefghijkl"[a], "abcdefghijkl"[b]) for a, b in chosen}
    assert len(groups) <= len(pairs)


def test_the_file_is_read_as_it_was_meant(tmp_path: Path) -> None:
    groups = [Group("未末", 0.97), Group("#＃", 0.96), Group("O0o", 0.8)]
    path = tmp_path / "groups.txt"
    path.write_text(to_file(groups, ["АA"], ["by hand"]), encoding="utf-8")
    assert read_groups(path) == ("未末", "＃#", "O0o")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# by hand\n") and "#   АA\n" in text
    assert "# similarity 0.95 and more\n未末\n" in text and "# similarity 0.80 and more\nO0o\n" in text
