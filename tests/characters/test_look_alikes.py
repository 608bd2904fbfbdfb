from __future__ import annotations

from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.characters.look_alikes import code_points, read_groups, symbol_name
from ppocr_ext.errors import DataError


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
    with raises_code(DataError, "unreadable_file"):
        read_groups(tmp_path / "none.txt")


def test_characters_that_leave_no_ink_are_named() -> None:
    named = {" ": "space", "\u3000": "U+3000", "\t": "U+0009", "a": "a", "$$": "$$", "a b": "a b", "": ""}
    assert {symbol: symbol_name(symbol) for symbol in named} == named
    assert code_points("未\U000e0fff") == "U+672A U+E0FFF"
