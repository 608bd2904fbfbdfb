"""How characters that leave no ink are named."""

import pytest

from ppocr_ext.characters.look_alikes import code_points, symbol_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (" ", "space"),
        ("\u3000", "U+3000"),
        ("\t", "U+0009"),
        ("a", "a"),
        ("$$", "$$"),
        ("a b", "a b"),
        ("", ""),
    ],
)
def test_what_cannot_be_seen_is_named(symbol, name):
    assert symbol_name(symbol) == name


def test_code_points_are_those_of_every_character():
    assert code_points("未\U000e0fff") == "U+672A U+E0FFF"
