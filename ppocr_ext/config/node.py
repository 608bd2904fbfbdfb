"""The tree behind a config: every value with the place where it was written.

Nodes never change; `assign` returns a new tree that shares the unchanged parts. No YAML library keeps places
through overlays and options, so this tree and its merging are our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import did_you_mean, near_match

PathLike = str | Sequence[str | int]
Key = str | int | float | bool | None


class PlaceKind(Enum):
    """Source of a value: a file, ``-o A.b=1``, ``-o +A.b=1``, or the program itself."""

    FILE = "file"
    OPTION = "option"
    FORCED_OPTION = "forced option"
    COMPUTED = "computed"


class Place(NamedTuple):
    """Place where a value was written.

    Attributes:
        origin: ``"a.yml"``, ``"-o"`` or ``"computed"``.
        text: place for messages: ``"a.yml:12"``, ``"-o A.b=1"`` or ``"computed"``.
        kind: source of the value. Decisions read this, never the text.
        target: path that an option sets; empty for other kinds.
    """

    origin: str
    text: str
    kind: PlaceKind = PlaceKind.FILE
    target: tuple[str, ...] = ()

    @property
    def is_option(self) -> bool:
        """Return True if ``-o`` set the value, with or without ``+``."""
        return self.kind in (PlaceKind.OPTION, PlaceKind.FORCED_OPTION)

    def computed(self) -> Place:
        """Return the place of a value that is computed from the value here."""
        return self._replace(kind=PlaceKind.COMPUTED)


COMPUTED = Place("computed", "computed", PlaceKind.COMPUTED)


class Mark(Enum):
    """Tag before a value of an overlay: what to do with the value below it."""

    NONE = ""
    REMOVE = "!remove"
    REPLACE = "!replace"


@dataclass(frozen=True)
class Node:
    """One value of a config: a dict of nodes, a tuple of nodes, or a scalar."""

    value: Any
    place: Place = COMPUTED
    mark: Mark = Mark.NONE

    @property
    def is_mapping(self) -> bool:
        """Return True for a dict of nodes."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Return True for a tuple of nodes."""
        return isinstance(self.value, tuple)

    @property
    def is_keyed_list(self) -> bool:
        """Return True for a list of single-key mappings, such as ``head_list`` and ``transforms``."""
        return (
            self.is_list and bool(self.value) and all(i.is_mapping and len(i.value) == 1 for i in self.value)
        )


def plain_copy(value: Any) -> Any:
    """Return plain dicts, lists and scalars of a tree, a `Config` or any mappings and sequences; a deep copy."""
    if isinstance(value, Node):
        value = value.value
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    return [plain_copy(item) for item in value] if isinstance(value, (list, tuple)) else value


def split(path: PathLike) -> tuple[str, ...]:
    """Return the components of ``"A.b.c"``, or of a sequence of components (for keys with a dot in them)."""
    parts = tuple(path.split(".")) if isinstance(path, str) else tuple(str(part) for part in path)
    if not parts or "" in parts:
        raise ConfigError(
            f"{dotted(parts)!r}: not a path (expected keys or list indices joined by single dots).",
            code="bad_path",
        )
    return parts


def dotted(parts: Iterable[Any]) -> str:
    """Return the path with dots, for messages."""
    return ".".join(str(part) for part in parts)


def nearest(name: str, known: Iterable[Any]) -> str:
    """Return the hint `` Did you mean 'x'?``, or else the list of known names; empty if there are none."""
    names = [str(key) for key in known]
    near = near_match(name, names, cutoff=0.6)
    if near:
        return did_you_mean(near)
    return f" There are: {', '.join(names)}." if names else ""


def key_in(mapping: Mapping[Key, Any], part: str) -> Key:
    """Return the key of ``mapping`` that a path component names; it may be a number or bool with that text."""
    if part in mapping:
        return part
    return next((key for key in mapping if not isinstance(key, str) and str(key) == part), part)


def positions(items: Iterable[Node], part: str) -> list[int]:
    """Return the indices of the items that are mappings with the key ``part``."""
    return [i for i, item in enumerate(items) if item.is_mapping and key_in(item.value, part) in item.value]


def position(node: Node, part: str, trail: Sequence[str]) -> int | None:
    """Return the index of the list item that ``part`` names by index or by key; None if there is none.

    Raises:
        ConfigError: several items have the key.
    """
    if part.isdecimal():
        return int(part) if int(part) < len(node.value) else None
    found = positions(node.value, part)
    if len(found) > 1:
        indices = " or ".join(dotted([*trail, i]) for i in found)
        raise ConfigError(
            f"{dotted([*trail, part])}: {part!r} occurs {len(found)} times in the list. Fix: write {indices}.",
            code="duplicate_key",
        )
    return found[0] if found else None


def child(node: Node, parts: Sequence[str], at: int) -> Node | None:
    """Return the node one component (``parts[at]``) below ``node``; None if there is none."""
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
    """Return the node at a path; None if there is none.

    Raises:
        ConfigError: a key of the path occurs several times in a list.
    """
    node: Node | None = root
    for at in range(len(parts)):
        node = None if node is None else child(node, parts, at)
    return node


def missing(root: Node, parts: Sequence[str]) -> str:
    """Return the message for a missing path: where it ends, and the nearest name there."""
    node = root
    for at, part in enumerate(parts):
        below = child(node, parts, at)
        if below is None:
            where = dotted(parts[:at]) or "the config"
            return f"{dotted(parts)}: there is no {part!r} in {where}.{nearest(part, names_in(node))}"
        node = below
    raise ValueError(f"{dotted(parts)} is there")


def names_in(node: Node) -> list[str]:
    """Return the names that may follow in a path: keys, keys of the items of a list, or its indices."""
    if node.is_mapping:
        return [str(key) for key in node.value]
    if node.is_keyed_list:
        return [str(key) for item in node.value for key in item.value]
    return [str(index) for index in range(len(node.value))] if node.is_list else []
