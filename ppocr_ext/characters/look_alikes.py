"""Groups of look-alike characters: the list of this package, or a user's file. Imports no Paddle."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_DICTIONARY_BYTES, read_at_most

_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")  # controls, formats, separators


def is_invisible(character: str) -> bool:
    """Return True if ``character`` is invisible, such as the space or a control character."""
    return unicodedata.category(character) in _INVISIBLE


def code_points(text: str) -> str:
    """Return the code points of ``text``, such as ``U+3000``, separated by spaces."""
    return " ".join(f"U+{ord(character):04X}" for character in text)


def symbol_name(symbol: str) -> str:
    """Return ``symbol``; ``space`` for the space, and the code points of other invisible symbols."""
    if symbol == " ":
        return "space"
    return code_points(symbol) if symbol and all(map(is_invisible, symbol)) else symbol


SHIPPED = "shipped"  # the name of the list of this package
_SHIPPED_FILE = Path(__file__).with_name("look_alikes.txt")


def read_groups(path: str | Path | None = None) -> tuple[str, ...]:
    """Return groups of look-alikes, such as ``("未末", "O0o")``.

    Args:
        path: a text file in UTF-8 with one group on each line, without spaces; ``#`` begins a comment. None or
            ``shipped``: the list of this package, of CJK characters, Latin letters, digits and punctuation.

    Raises:
        DataError: the file cannot be read, or a line is not a group.
    """
    path = _SHIPPED_FILE if path in (None, SHIPPED) else Path(path)
    try:
        lines = read_at_most(path, MAX_DICTIONARY_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: the look-alike groups cannot be read ({getattr(error, 'strerror', None) or error}). Fix: give a "
            f"text file in UTF-8 with one group per line, such as 未末.",
            code="unreadable_file",
        ) from error
    groups: dict[frozenset[str], str] = {}
    for number, line in enumerate(lines, start=1):
        group = line.strip()
        if not group or group.startswith("#"):
            continue
        if len(set(group)) < 2 or any(character.isspace() for character in group):
            raise DataError(
                f"{path}:{number}: found {group!r}, expected a group of two or more characters without spaces.",
                code="bad_group",
            )
        groups.setdefault(frozenset(group), "".join(dict.fromkeys(group)))
    if not groups:
        raise DataError(f"{path} has no look-alike group.", code="empty_file")
    return tuple(groups.values())


def within(groups: Iterable[str], characters: Iterable[str]) -> tuple[str, ...]:
    """Return the groups restricted to ``characters``, without groups that have less than two of them."""
    known = set(characters)
    kept = ("".join(c for c in group if c in known) for group in groups)
    return tuple(dict.fromkeys(group for group in kept if len(group) > 1))


def look_alikes_of(groups: Sequence[str]) -> Mapping[str, set[str]]:
    """Return the look-alikes of each character: the other characters of its groups."""
    others: dict[str, set[str]] = {}
    for group in groups:
        for character in group:
            others.setdefault(character, set()).update(set(group) - {character})
    return others
