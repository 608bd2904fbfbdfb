from __future__ import annotations

from pathlib import Path

import pytest

from ppocr_ext.characters.look_alikes import read_groups, within
from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.evaluate import Prediction, write_predictions
from ppocr_ext.evaluation.predictions import Read, pair_up, read_predictions


def test_the_shipped_list_has_what_people_confuse() -> None:
    groups = read_groups()
    for pair in ("未末", "己已", "已巳", "土士", "O0", "l1", "1I"):
        assert any(set(pair) <= set(group) for group in groups), pair
    assert len(groups) == len(set(groups))


def test_a_file_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("\ufeff# mine\nabc\n\nO00\n", encoding="utf-8")
    assert read_groups(tmp_path / "own.txt") == ("abc", "O0")


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [("a\n", "bad_group", ":1"), ("abc\na b\n", "bad_group", ":2"), ("# x\n", "empty_file", "")],
)
def test_files_that_are_no_groups_are_refused(tmp_path: Path, text: str, code: str, place: str) -> None:
    (tmp_path / "own.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        read_groups(tmp_path / "own.txt")
    assert error.value.code == code and str(error.value).startswith(f"{tmp_path / 'own.txt'}{place}")
    with pytest.raises(DataError) as error:
        read_groups(tmp_path / "none.txt")
    assert error.value.code == "unreadable_file"


def test_groups_within_a_dictionary() -> None:
    assert within(["O0o", "ab", "xy"], "O0axyz") == ("O0", "xy")


def test_predictions_are_read_as_they_are_written(tmp_path: Path) -> None:
    write_predictions(
        tmp_path / "p.tsv", [Prediction("a.png", 'q"\t', "未", 0.5), Prediction("b.png", "1", "", 0.0)]
    )
    assert read_predictions(tmp_path / "p.tsv") == [
        Read("a.png", 'q"\t', "未", 0.5),
        Read("b.png", "1", "", 0.0),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "first line"),
        ("image\tlabel\n", "first line"),
        ("image\tlabel\tprediction\tconfidence\n", "holds no predictions"),
        ("image\tlabel\tprediction\tconfidence\na\tb\n", ":2: no line"),
        ("image\tlabel\tprediction\tconfidence\na\tb\tc\thigh\n", ":2: no line"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_predictions(tmp_path / "p.tsv")


def test_two_files_must_be_of_the_same_lines() -> None:
    one, other = Read("a", "x", "x", 1.0), Read("a", "y", "x", 1.0)
    pair_up([one], [one], ("before", "after"))
    with pytest.raises(DataError, match="differ at line 2"):
        pair_up([one], [other], ("before", "after"))
    with pytest.raises(DataError, match="1 lines and after 2"):
        pair_up([one], [one, one], ("before", "after"))
