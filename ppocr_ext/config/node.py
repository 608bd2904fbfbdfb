"""The tree that a config is kept in: every value with the place where it was written.

Nodes are never changed once built; `assign` returns a new tree that shares what did not change.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import did_you_mean

PathLike = str | Sequence[str | int]
Key = str | int | float | bool | None
_SCALARS = (str, int, float, bool, bytes, datetime.date, type(None))


class PlaceKind(Enum):
    """What gave a value: a file, ``-o A.b=1``, ``-o +A.b=1``, or the program itself."""

    FILE = "file"
    OPTION = "option"
    FORCED_OPTION = "forced option"
    COMPUTED = "computed"


class Place(NamedTuple):
    """Where a value comes from.

    Attributes:
        origin: ``"a.yml"``, ``"-o"`` or ``"computed"``.
        text: as messages show it: ``"a.yml:12"``, ``"-o A.b=1"`` or ``"computed"``.
        kind: what gave the value. Decisions read this, never the text.
        target: path that an option sets; empty for other kinds.
    """

    origin: str
    text: str
    kind: PlaceKind = PlaceKind.FILE
    target: tuple[str, ...] = ()

    @property
    def is_option(self) -> bool:
        """True if ``-o`` gave the value, with or without ``+``."""
        return self.kind in (PlaceKind.OPTION, PlaceKind.FORCED_OPTION)

    def derived(self) -> Place:
        """Return the place of a value that is computed from the value here."""
        return self._replace(kind=PlaceKind.COMPUTED)


COMPUTED = Place("computed", "computed", PlaceKind.COMPUTED)


class Mark(Enum):
    """What a tag before a value tells an overlay to do with what stands there."""

    NONE = ""
    REMOVE = "!remove"
    REPLACE = "!replace"


@dataclass(frozen=True)
class Node:
    """One value: a dict of nodes, a tuple of nodes, or a scalar."""

    value: Any
    place: Place = COMPUTED
    mark: Mark = Mark.NONE

    @property
    def is_mapping(self) -> bool:
        """A dict of nodes."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """A tuple of nodes."""
        return isinstance(self.value, tuple)

    @property
    def is_keyed_list(self) -> bool:
        """A list of single-key mappings, as ``head_list``, ``loss_config_list`` and ``transforms``."""
        return (
            self.is_list and bool(self.value) and all(i.is_mapping and len(i.value) == 1 for i in self.value)
        )


def from_plain(value: Any, place: Place = COMPUTED) -> Node:
    """The tree of plain mappings, sequences and scalars, all written at ``place``; a `Node` keeps its own places."""
    if isinstance(value, Node):
        return value
    if isinstance(value, Mapping):
        return Node({key: from_plain(item, place) for key, item in value.items()}, place)
    if isinstance(value, (list, tuple)):
        return Node(tuple(from_plain(item, place) for item in value), place)
    if not isinstance(value, _SCALARS):
        raise TypeError(
            f"a config holds mappings, lists and plain scalars, not {type(value).__name__}: {value!r}"
        )
    return Node(value, place)


def to_plain(node: Node) -> Any:
    """Plain dicts, lists and scalars of a tree, shared with nothing."""
    if node.is_mapping:
        return {key: to_plain(item) for key, item in node.value.items()}
    if node.is_list:
        return [to_plain(item) for item in node.value]
    return node.value


def split(path: PathLike) -> tuple[str, ...]:
    """Components of ``"A.b.c"``; a sequence of components (for keys with a dot in them) is taken as it is."""
    parts = tuple(path.split(".")) if isinstance(path, str) else tuple(str(part) for part in path)
    if not parts or "" in parts:
        raise ConfigError(f"{dotted(parts)!r}: a path is keys or list indices joined by single dots.")
    return parts


def dotted(parts: Iterable[Any]) -> str:
    """The path as messages show it."""
    return ".".join(str(part) for part in parts)


def nearest(name: str, known: Iterable[Any]) -> str:
    """`` Did you mean 'x'?``, or the names that there are, or nothing where there are none."""
    names = [str(key) for key in known]
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return did_you_mean(close[0])
    return f" There are: {', '.join(names)}." if names else ""


def key_in(mapping: Mapping[Key, Any], part: str) -> Key:
    """The key of ``mapping`` that a path component names: itself, or the number, bool, … that reads so."""
    if part in mapping:
        return part
    return next((key for key in mapping if not isinstance(key, str) and str(key) == part), part)


def positions(items: Iterable[Node], part: str) -> list[int]:
    """Indices of the items that are mappings with the key ``part``."""
    return [i for i, item in enumerate(items) if item.is_mapping and key_in(item.value, part) in item.value]


def position(node: Node, part: str, trail: Sequence[str]) -> int | None:
    """Index of the item that ``part`` names: its index, or the key of one single mapping of the list.

    Raises:
        ConfigError: several items have the key.
    """
    if part.isdecimal():
        return int(part) if int(part) < len(node.value) else None
    found = positions(node.value, part)
    if len(found) > 1:
        indices = " or ".join(dotted([*trail, i]) for i in found)
        raise ConfigError(
            f"{dotted([*trail, part])}: {part!r} stands {len(found)} times there; say {indices}."
        )
    return found[0] if found else None


def child(node: Node, parts: Sequence[str], at: int) -> Node | None:
    """The node one component (``parts[at]``) below ``node``; None where there is none."""
    part = parts[at]
    if node.is_mapping:
        found: Node | None = node.value.get(key_in(node.value, part))
        return found
    if not node.is_list:
        return None
    index = position(node, part, parts[:at])
    if index is None:
        return None
    item: Node = node.value[index]
    return item if part.isdecimal() else item.value[key_in(item.value, part)]


def find(root: Node, parts: Sequence[str]) -> Node | None:
    """The node at a path; None where there is none.

    Raises:
        ConfigError: a key of the path stands several times in a list.
    """
    node: Node | None = root
    for at in range(len(parts)):
        if node is None:
            break
        node = child(node, parts, at)
    return node


def missing(root: Node, parts: Sequence[str]) -> str:
    """Sentence: where the path ends, and the nearest name there."""
    node = root
    for at, part in enumerate(parts):
        below = child(node, parts, at)
        if below is None:
            where = dotted(parts[:at]) or "the config"
            return f"there is no {part!r} in {where}.{nearest(part, names_in(node))}"
        node = below
    raise ValueError(f"{dotted(parts)} is there")


def names_in(node: Node) -> list[str]:
    """What a path may go on with below ``node``: keys, keys of the items of a list, or its indices."""
    if node.is_mapping:
        return [str(key) for key in node.value]
    if node.is_keyed_list:
        return [str(key) for item in node.value for key in item.value]
    return [str(index) for index in range(len(node.value))] if node.is_list else []
