"""Groups of look-alike characters: the list that is shipped, or a user's own. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ppocr_ext.errors import DataError

SHIPPED = "shipped"  # the name of the list that comes with this package
_SHIPPED_FILE = Path(__file__).with_name("look_alikes.txt")


def read_groups(path: str | Path | None = None) -> tuple[str, ...]:
    """Groups of look-alikes, such as ``("未末", "O0o")``.

    Args:
        path: a text file, UTF-8, a group a line without spaces, ``#`` before a comment; None or ``shipped``: the
            list that comes with this package, of CJK characters, Latin letters, digits and punctuation.

    Raises:
        DataError: the file cannot be read, or a line is no group.
    """
    path = _SHIPPED_FILE if path in (None, SHIPPED) else Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise DataError(
            f"{path}: the groups of look-alikes cannot be read ({getattr(fault, 'strerror', None) or fault}). Give a "
            f"text file in UTF-8 with a group a line, such as 未末; `ppocr-ext lookalikes` makes one."
        ) from fault
    groups: dict[frozenset[str], str] = {}
    for number, line in enumerate(lines, start=1):
        group = line.strip()
        if not group or group.startswith("#"):
            continue
        if len(set(group)) < 2 or any(character.isspace() for character in group):
            raise DataError(f"{path}:{number}: {group!r} is no group: two or more characters without spaces.")
        groups.setdefault(frozenset(group), "".join(dict.fromkeys(group)))
    if not groups:
        raise DataError(f"{path} holds no group of look-alikes.")
    return tuple(groups.values())


def within(groups: Iterable[str], characters: Iterable[str]) -> tuple[str, ...]:
    """The groups as far as their characters are among ``characters``; those with one left are dropped."""
    known = set(characters)
    kept = ("".join(c for c in group if c in known) for group in groups)
    return tuple(dict.fromkeys(group for group in kept if len(group) > 1))


def rivals_of(groups: Sequence[str]) -> Mapping[str, set[str]]:
    """The look-alikes of each character: the others of its groups."""
    rivals: dict[str, set[str]] = {}
    for group in groups:
        for character in group:
            rivals.setdefault(character, set()).update(set(group) - {character})
    return rivals
