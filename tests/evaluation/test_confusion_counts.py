from __future__ import annotations

import math
from collections import Counter

import pytest

from ppocr_ext.characters.look_alikes import look_alikes_of
from ppocr_ext.evaluation.predictions import (
    McNemar,
    Rate,
    align,
    characters_in_groups,
    count_confusions,
    errors_by_group,
    look_alike_errors,
)


@pytest.mark.parametrize(
    ("label", "prediction", "pairs"),
    [
        ("abc", "abc", [("a", "a"), ("b", "b"), ("c", "c")]),
        ("未来", "末来", [("未", "末"), ("来", "来")]),
        ("ab", "b", [("a", ""), ("b", "b")]),
        ("b", "ab", [("", "a"), ("b", "b")]),
        ("", "x", [("", "x")]),
        ("x", "", [("x", "")]),
        ("", "", []),
    ],
)
def test_align(label: str, prediction: str, pairs: list[tuple[str, str]]) -> None:
    assert align(label, prediction) == pairs


LINES = [("未来", "末来"), ("未末", "未末"), ("土", "士"), ("未", "末"), ("末", ""), ("来", "来来")]


def test_counts() -> None:
    found = count_confusions(LINES)
    assert found.pairs == Counter({("未", "末"): 2, ("土", "士"): 1, ("末", ""): 1, ("", "来"): 1})
    assert found.examples[("未", "末")] == [0, 3]
    assert found.substitutions() == [("未", "末", 2), ("土", "士", 1)]
    wei = found.characters["未"]
    assert (wei.count, wei.predicted, wei.correct) == (3, 1, 1)
    assert wei.recall == pytest.approx(1 / 3)
    assert wei.precision == 1.0
    assert math.isnan(found.characters["土"].precision)
    assert math.isnan(found.characters["士"].recall)


def test_examples_are_limited_and_name_a_line_once() -> None:
    found = count_confusions([("00", "OO")] * 20)
    assert found.pairs[("0", "O")] == 40
    assert found.examples[("0", "O")] == list(range(8))


def test_look_alike_errors_count_within_a_group_only() -> None:
    rate = look_alike_errors([*LINES, ("土", "未")], ["未末", "土士"])
    # 未 3, 末 2, 土 2, of which 未→末 twice and 土→士 once; 土→未 is no look-alike
    assert (rate.hits, rate.total) == (3, 7)


def test_errors_by_group_count_a_character_in_each_of_its_groups() -> None:
    found = errors_by_group([("l1", "I1"), ("1", "I"), ("x", "")], ["l1I", "1I", "xX", "zZ"])
    # l→I and 1→I in the first, 1→I in the second, an omission is no confusion
    assert {group: (rate.hits, rate.total) for group, rate in found.items()} == {
        "l1I": (2, 3),
        "1I": (1, 2),
        "xX": (0, 1),
    }


def test_each_character_of_a_group_with_what_it_was_confused_in() -> None:
    found = list(characters_in_groups([("1x", "lx"), ("I", "l")], ["l1", "1I"]))
    assert found == [("1", {"l1": True, "1I": False}), ("I", {"1I": False})]


def test_a_character_in_two_groups_has_the_rivals_of_both() -> None:
    assert look_alikes_of(["l1", "1I"])["1"] == {"l", "I"}


def test_wilson_interval_of_a_textbook_example() -> None:
    low, high = Rate(15, 148).interval  # Newcombe 1998, table I: 0.0624 to 0.1605
    assert low == pytest.approx(0.0624, abs=5e-5)
    assert high == pytest.approx(0.1605, abs=5e-5)
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(0, 20).interval[0] == 0.0


def test_mcnemar_is_the_exact_binomial_test() -> None:
    before = [True] * 6 + [False] * 2 + [True] * 10
    after = [False] * 6 + [True] * 2 + [True] * 10
    result = McNemar.of(before, after)
    assert (result.only_before, result.only_after) == (6, 2)
    expected = 2 * sum(math.comb(8, i) for i in range(3)) / 2**8
    assert result.p_value == pytest.approx(expected)
    assert McNemar.of([True], [True]).p_value == 1.0
    assert McNemar.of([True, False], [False, True]).p_value == 1.0


def test_mcnemar_needs_the_same_lines() -> None:
    with pytest.raises(ValueError):
        McNemar.of([True], [True, False])
