"""Summary of a set of centers."""

import numpy as np
import pytest

from ppocr_ext.centers import center_summary as module
from ppocr_ext.centers.center_summary import look_alike_distance, look_alike_ratios, nearest_pairs
from ppocr_ext.characters.center_table import CenterTable


def table_of(characters, centers, counts=None, variance=None):
    count = len(characters)
    return CenterTable(
        np.arange(1, count + 1),
        tuple(characters),
        np.array(centers, "float32"),
        np.ones(count, int) if counts is None else np.array(counts),
        np.zeros(count) if variance is None else np.array(variance, float),
    )


def test_the_distance_to_the_nearest_look_alike():
    table = table_of("未末来土士", [[0, 0], [3, 4], [6, 8], [0, 1], [0, 3]])
    # 25 of 未, 末 and 来, each to its nearest; 4 of 土 and 士
    assert look_alike_distance(table, ["未末来", "土士", "甲由"]) == 25.0
    assert look_alike_distance(table, ["未甲", "甲由"]) is None


def test_how_far_look_alikes_lie_apart_in_standard_deviations():
    table = table_of("未末来甲", [[0, 0], [3, 4], [6, 8], [0, 1]], counts=[20] * 4, variance=[4, 1, 1, 100])
    # 未 to 末: 5 over the root of 2.5, and 末's nearest is the first of two as near; 来 to 末: 5 over 1
    expected = {"未": pytest.approx(5 / 2.5**0.5), "末": pytest.approx(5 / 2.5**0.5), "来": 5.0}
    assert look_alike_ratios(table, ["未末来", "甲由"]) == expected
    scaled = table_of("未末来甲", 3 * table.centers, counts=table.counts, variance=9 * table.variance)
    assert look_alike_ratios(scaled, ["未末来"]) == pytest.approx(look_alike_ratios(table, ["未末来"]))
    assert look_alike_ratios(table, ["甲由"]) == {}
    assert look_alike_ratios(table_of("未末", [[0], [1]]), ["未末"]) == {}  # no variance is known


def test_pairs_are_ranked_by_distance_in_units_of_spread():
    table = table_of("abc", [[0, 0], [3, 0], [3, 4]], counts=[20, 20, 20], variance=[1, 1, 17])
    first, second, third = nearest_pairs(table)
    assert (first.first, first.second, first.distance) == ("b", "c", 4.0)
    assert first.ratio == pytest.approx(4 / 3)  # the root of the mean of 1 and 17
    assert (second.first, second.second, second.ratio) == ("a", "c", pytest.approx(5 / 3))
    assert (third.first, third.second, third.ratio) == ("a", "b", pytest.approx(3.0))
    assert nearest_pairs(table, 1) == [first]


def test_characters_of_few_frames_have_the_spread_of_the_others():
    centers = [[0, 0], [12, 0], [100, 0], [100, 8]]
    table = table_of("abcd", centers, counts=[30, 30, 1, 9], variance=[4, 4, 0, 0.01])
    pairs = {(pair.first, pair.second): pair for pair in nearest_pairs(table)}
    assert pairs["c", "d"].distance == 8.0
    assert pairs["c", "d"].ratio == pytest.approx(4.0)
    assert pairs["a", "b"].ratio == pytest.approx(6.0)
    few = table_of("abc", [[0, 0], [6, 0], [9, 0]], counts=[3, 2, 1], variance=[2, 1.5, 0])
    assert nearest_pairs(few)[0].ratio == pytest.approx(3 / 3**0.5)  # pooled: (3·2 + 2·1.5) / (2 + 1 + 0)


@pytest.mark.parametrize("block", [1, 7, 512])
def test_the_nearest_pairs_are_those_of_plain_loops(monkeypatch, block):
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(0)
    centers = (rng.normal(size=[60, 5]) + 1000).astype("float32")  # far from the origin, as features can be
    variance = rng.uniform(0.5, 2, 60)
    table = table_of([chr(0x4E00 + i) for i in range(60)], centers, np.full(60, 50), variance)
    every = []
    for i in range(60):
        for j in range(i + 1, 60):
            distance = float(np.linalg.norm(centers[i].astype(float) - centers[j].astype(float)))
            ratio = distance / ((variance[i] + variance[j]) / 2) ** 0.5
            every.append((ratio, distance, table.characters[i], table.characters[j]))
    found = nearest_pairs(table, 25)
    assert [(p.first, p.second) for p in found] == [(a, b) for _, _, a, b in sorted(every)[:25]]
    assert [p.ratio for p in found] == pytest.approx([r for r, *_ in sorted(every)[:25]], rel=1e-9)
    assert [p.distance for p in found] == pytest.approx([d for _, d, *_ in sorted(every)[:25]], rel=1e-9)


def test_the_blank_is_in_no_pair():
    table = table_of("abc", [[0, 0], [1, 0], [5, 0]], [20, 20, 20], [1, 1, 1])
    with_blank = CenterTable(
        np.array([0, 1, 2]), ("blank", "b", "c"), table.centers, table.counts, table.variance
    )
    assert [(p.first, p.second) for p in nearest_pairs(with_blank)] == [("b", "c")]
