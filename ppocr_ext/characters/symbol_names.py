"""How characters that leave no ink are named in messages and on maps."""

from __future__ import annotations

import unicodedata

_NO_INK = ("Cc", "Cf", "Zs", "Zl", "Zp")  # controls, formats, separators


def leaves_no_ink(character: str) -> bool:
    """Whether ``character`` cannot be seen, as the space or a control character."""
    return unicodedata.category(character) in _NO_INK


def code_points(text: str) -> str:
    """``U+3000``; of several characters, one after the other."""
    return " ".join(f"U+{ord(character):04X}" for character in text)


def name_of(symbol: str) -> str:
    """``symbol`` as a list in a message shows it: ``space``, the code points of what cannot be seen, or itself."""
    if symbol == " ":
        return "space"
    return code_points(symbol) if symbol and all(map(leaves_no_ink, symbol)) else symbol
