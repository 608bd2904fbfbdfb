"""Names of characters that cannot be seen, for messages and maps."""

from __future__ import annotations

import unicodedata

_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # controls, formats, separators


def is_invisible(character: str) -> bool:
    """Return True if ``character`` cannot be seen, such as the space or a control character."""
    return unicodedata.category(character) in _INVISIBLE


def code_points(text: str) -> str:
    """Return the code points of ``text``, such as ``U+3000``, separated by spaces."""
    return " ".join(f"U+{ord(character):04X}" for character in text)


def symbol_name(symbol: str) -> str:
    """Return ``symbol``; ``space`` for the space, and the code points if it cannot be seen."""
    if symbol == " ":
        return "space"
    return code_points(symbol) if symbol and all(map(is_invisible, symbol)) else symbol
