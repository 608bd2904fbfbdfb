"""Predictions are read as they are written, and what is confused in them is counted."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.characters.look_alikes import look_alikes_of
from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import (
    Prediction,
    align,
    count_confusions,
    errors_by_group,
    look_alike_errors,
    pages_of,
    read_predictions,
    samples_of_both,
    write_predictions,
)


def test_predictions_are_read_as_they_are_written(tmp_path: Path) -> None:
    written = [Prediction("a.png", 'q"\t', "未", 0.5), Prediction("b.png", "1", "", 0.0)]
    write_predictions(tmp_path / "p.tsv", written)
    assert read_predictions(tmp_path / "p.tsv") == written
    lines = (tmp_path / "p.tsv").read_text(encoding="utf-8").splitlines()
    more = [f"{line}\t{extra}\t{extra}\n" for line, extra in zip(lines, ("x", "0.5", ""), strict=True)]
    (tmp_path / "p.tsv").write_text("".join(more), encoding="utf-8")  # of `predict --characters`
    assert read_predictions(tmp_path / "p.tsv") == written


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "bad_content", "p.tsv:1"),
        ("image\tlabel\n", "bad_content", "p.tsv:1"),
        ("image\tlabel\tprediction\tconfidence\n", "empty_file", "p.tsv"),
        ("image\tlabel\tprediction\tconfidence\na\tb\n", "bad_content", "p.tsv:2"),
        ("image\tlabel\tprediction\tconfidence\na\tb\tc\thigh\n", "bad_content", "p.tsv:2"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, code: str, place: str) -> None:
    (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
    with raises_code(DataError, code, str(tmp_path / place)):
        read_predictions(tmp_path / "p.tsv")


@pytest.mark.parametrize(
    ("after", "both", "left_out"),
    [
        ("ax1 bx2 az3 ax4", "ax1 bx2 az3 ax4", ""),
        ("az7 ax8 bx9 ax0", "az3 ax1 bx2 ax4", ""),  # the worst first; equal samples keep their order
        ("bx9 ax0", "bx2 ax1", "2 only in old"),
        ("cx0 bz0 ax0", "ax1", "3 only in old, 2 only in new"),
    ],
)
def test_samples_of_two_files_are_matched(after: str, both: str, left_out: str) -> None:
    def read(words: str) -> list[Prediction]:
        return [Prediction(*each, 1.0) for each in words.split()]  # image, label, text

    earlier, later, note = samples_of_both(read("ax1 bx2 az3 ax4"), read(after), ("old", "new"))
    assert earlier == read(both) and left_out in note and bool(note) is bool(left_out)
    assert [(each.image, each.label) for each in later] == [(each.image, each.label) for each in earlier]
    with raises_code(DataError, "different_samples", "old", "new", "a 'x'", "a 'z'"):
        samples_of_both(read("ax1"), read("az1"), ("old", "new"))


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


def test_groups_are_of_a_column_or_of_names_of_crops(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.tsv", [Prediction(f"a/b_crop_{n}.jpg", "x", "x", 1.0) for n in (0, 12)])
    assert pages_of(read_predictions(tmp_path / "p.tsv")) == ["a/b", "a/b"]
    rows = ["image\tlabel\tprediction\tconfidence\tmine\tgroup", "1.png\tx\tx\t1\t\tp", "2.png\tx\tx\t1\t\t"]
    (tmp_path / "p.tsv").write_text("\n".join(rows), encoding="utf-8")
    first, second = pages_of(read_predictions(tmp_path / "p.tsv"))
    assert first == "p" != second
    assert pages_of([Prediction("1.png", "x", "x", 1.0)]) == []


def test_counts() -> None:
    found = count_confusions(LINES)
    assert found.pairs == Counter({("未", "末"): 2, ("土", "士"): 1, ("末", ""): 1, ("", "来"): 1})
    assert found.examples[("未", "末")] == [0, 3]
    assert found.ranked("substitutions") == [("未", "末", 2), ("土", "士", 1)]
    assert found.ranked("deletions") == [("末", "", 1)]
    assert found.ranked("insertions") == [("", "来", 1)]
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


def test_a_character_in_two_groups_has_the_rivals_of_both() -> None:
    assert look_alikes_of(["l1", "1I"])["1"] == {"l", "I"}
