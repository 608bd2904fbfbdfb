"""The tree behind a config: every value with the place where it was written; how a value is set, and trees merge.

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
    """Sources of a value: a file, ``-o A.b=1``, ``-o +A.b=1``, or the program itself."""

    FILE = "file"
    OPTION = "option"
    FORCED_OPTION = "forced option"
    COMPUTED = "computed"


class Place(NamedTuple):
    """Place where a value was written.

    Attributes:
        origin: ``"a.yml"``, ``"-o"`` or ``"computed"``.
        text: the place for messages: ``"a.yml:12"``, ``"-o A.b=1"`` or ``"computed"``.
        kind: source of the value; code decides by this, never by the text.
        target: the path that an option sets; empty for other kinds.
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
        """Return the place for a value that is computed from the value at this place."""
        return self._replace(kind=PlaceKind.COMPUTED)


COMPUTED = Place("computed", "computed", PlaceKind.COMPUTED)


class Mark(Enum):
    """Tag before a value of an overlay: what happens to the value of the base."""

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
    """Return a deep copy of a tree, a `Config`, or any mappings and sequences, as plain dicts, lists and scalars."""
    if isinstance(value, Node):
        value = value.value
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    return [plain_copy(item) for item in value] if isinstance(value, (list, tuple)) else value


def split(path: PathLike) -> tuple[str, ...]:
    """Return the components of ``"A.b.c"``, or of a sequence of components (for keys that contain a dot)."""
    parts = tuple(path.split(".")) if isinstance(path, str) else tuple(str(part) for part in path)
    if not parts or "" in parts:
        raise ConfigError(
            f"{dotted(parts)!r}: not a path (expected keys or list indices joined by single dots).",
            code="bad_path",
        )
    return parts


def dotted(parts: Iterable[Any]) -> str:
    """Return the components joined by dots."""
    return ".".join(str(part) for part in parts)


def nearest(name: str, known: Iterable[Any]) -> str:
    """Return the hint `` Did you mean 'x'?`` if a known name is near, or the list of known names."""
    names = [str(key) for key in known]
    if near := near_match(name, names, cutoff=0.6):
        return did_you_mean(near)
    return f" There are: {', '.join(names)}." if names else ""


def key_in(mapping: Mapping[Key, Any], part: str) -> Key:
    """Return the key of ``mapping`` for a path component; the key may be a number or a bool with that text."""
    if part in mapping:
        return part
    return next((key for key in mapping if not isinstance(key, str) and str(key) == part), part)


def positions(items: Iterable[Node], part: str) -> list[int]:
    """Return the indices of the items that are mappings with the key ``part``."""
    return [i for i, item in enumerate(items) if item.is_mapping and key_in(item.value, part) in item.value]


def position(node: Node, part: str, trail: Sequence[str]) -> int | None:
    """Return the index of the list item that ``part`` names, by index or by key; None if there is none.

    Raises:
        ConfigError: several items have the key.
    """
    if part.isdecimal():
        return int(part) if int(part) < len(node.value) else None
    indices = positions(node.value, part)
    if len(indices) > 1:
        paths = " or ".join(dotted([*trail, index]) for index in indices)
        raise ConfigError(
            f"{dotted([*trail, part])}: {part!r} occurs {len(indices)} times in the list. Fix: write {paths}.",
            code="duplicate_key",
        )
    return indices[0] if indices else None


def child(node: Node, parts: Sequence[str], at: int) -> Node | None:
    """Return the node one component (``parts[at]``) below ``node``; None if there is none."""
    part = parts[at]
    item: Node | None = node
    if node.is_list:
        index = position(node, part, parts[:at])
        item = None if index is None else node.value[index]
        if part.isdecimal():
            return item
    if item is None or not item.is_mapping:
        return None
    below: Node | None = item.value.get(key_in(item.value, part))
    return below


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
    """Return the message for a missing path: which component is missing, and the nearest name there."""
    node = root
    for at, part in enumerate(parts):
        if (below := child(node, parts, at)) is None:
            where = dotted(parts[:at]) or "the config"
            return f"{dotted(parts)}: there is no {part!r} in {where}.{nearest(part, names_in(node))}"
        node = below
    raise ValueError(f"{dotted(parts)} is there")


def names_in(node: Node) -> list[str]:
    """Return the names that may follow in a path: keys of a mapping, keys of the items of a list, or indices."""
    if node.is_mapping:
        return [str(key) for key in node.value]
    if node.is_keyed_list:
        return [str(key) for item in node.value for key in item.value]
    return [str(index) for index in range(len(node.value))] if node.is_list else []


ORDERED_LISTS = frozenset({"transforms"})  # lists of single-key mappings whose order has a meaning


def assign(node: Node, parts: tuple[str, ...], value: Node, append: bool = False, at: int = 0) -> Node:
    """Return ``node`` with ``value`` at the path; missing or empty (``null``) mappings on the way are added.

    A value marked `Mark.REMOVE` removes the value at the path, and the list item if it becomes empty.

    Args:
        node: the tree; not changed.
        parts: components of the path; a list is entered by index or by the key of one of its items.
        value: the new value.
        append: add a key that a list of single-key mappings lacks as a new item at its end.
        at: number of components of the path that lead to ``node``.

    Raises:
        ConfigError: the path goes through a scalar or into a list without the item, or there is
            nothing to remove.
    """
    if at == len(parts):
        return value
    if node.value is None:
        node = Node({}, node.place)
    if node.is_list:
        return _assign_in_list(node, parts, at, value, append)
    if not node.is_mapping:
        raise ConfigError(
            f"{dotted(parts)}: {dotted(parts[:at])} is {node.value!r} ({node.place.text}), which has nothing "
            f"below it. Fix: set {dotted(parts[:at])}.",
            code="not_a_mapping",
        )
    key = key_in(node.value, parts[at])
    if value.mark is Mark.REMOVE and key not in node.value:
        raise _nothing_to_remove("", parts, nearest(parts[at], names_in(node)))
    changed = assign(node.value.get(key) or Node(None, value.place), parts, value, append, at + 1)
    items: dict[Key, Node] = {**node.value, key: changed}
    if changed.mark is Mark.REMOVE:
        del items[key]
    return Node(items, node.place)


def _assign_in_list(node: Node, parts: tuple[str, ...], at: int, value: Node, append: bool) -> Node:
    part = parts[at]
    trail = parts[:at]
    if (index := position(node, part, trail)) is None:
        if not (append and node.is_keyed_list and not part.isdecimal() and value.mark is not Mark.REMOVE):
            problem = (
                f"has {len(node.value)} items, counted from 0."
                if part.isdecimal()
                else f"is a list without {part!r}.{nearest(part, names_in(node))}"
            )
            raise ConfigError(f"{dotted(parts)}: {dotted(trail)} {problem}", code="missing_item")
        _refuse_new_item(part, trail, value)
        return Node((*node.value, assign(Node({}, value.place), parts, value, append, at)), node.place)
    # if `part` is a key, the item is a mapping with this key, so the same component is looked up again there
    changed = assign(node.value[index], parts, value, append, at + part.isdecimal())
    emptied = changed.is_mapping and not changed.value and value.mark is Mark.REMOVE
    kept = () if changed.mark is Mark.REMOVE or emptied else (changed,)
    return Node((*node.value[:index], *kept, *node.value[index + 1 :]), node.place)


def _refuse_new_item(key: str, trail: Sequence[str], value: Node) -> None:
    if trail and trail[-1] in ORDERED_LISTS:
        raise ConfigError(
            f"{value.place.text}: {dotted(trail)} has no {key!r}, and nothing can be added, since its order matters. "
            f"Fix: write the whole list: `{trail[-1]}: !replace [...]`.",
            code="ordered_list",
        )


def _nothing_to_remove(place: str, path: Sequence[str], hint: str = "") -> ConfigError:
    return ConfigError(f"{place}{dotted(path)}: nothing to remove there.{hint}", code="nothing_to_remove")


def merge(base: Node, over: Node, trail: Sequence[str] = ()) -> Node:
    """Return ``base`` overlaid with ``over``; neither is changed.

    - Mappings merge key by key.
    - Lists of single-key mappings (``head_list``, ``loss_config_list``) merge by key: the order of the
      base is kept, new keys are appended. ``transforms`` takes no new keys, since its order matters.
    - Other lists and scalars replace the value of the base.
    - ``KEY: !remove`` removes the key, or the item of the list.
    - ``KEY: !replace [...]`` replaces the value of the base by a list or mapping.
    - A computed value of ``over`` replaces nothing.

    Raises:
        ConfigError: there is nothing to remove, a key occurs twice in one of two lists that should merge by key, or an
            item has several keys where those of the base have one.
    """
    if over.mark is Mark.NONE:
        if base.is_mapping and over.is_mapping:
            return _merge_mappings(base, over, trail)
        if base.is_keyed_list and over.is_keyed_list:
            return _merge_keyed_lists(base, over, trail)
        for index, item in enumerate(over.value if base.is_keyed_list and over.is_list else ()):
            if item.is_mapping and len(item.value) > 1:  # usually the options of the item are not indented
                raise ConfigError(
                    f"{item.place.text}: {dotted(trail)}: item {index} has the keys {', '.join(names_in(item))}, "
                    f"but the items of the list below it have one each. Fix: indent its options below its name. "
                    f"{_replace_fix(trail)}",
                    code="several_keys",
                )
    return unmarked(over, trail)


def unmarked(node: Node, trail: Sequence[str] = ()) -> Node:
    """Return a tree without its marks, for a place where the base has no value.

    Raises:
        ConfigError: the tree has a ``!remove``.
    """
    if node.mark is Mark.REMOVE:
        raise _nothing_to_remove(f"{node.place.text}: ", trail)
    if node.is_mapping:
        items = {key: unmarked(item, [*trail, str(key)]) for key, item in node.value.items()}
        return Node(items, node.place)
    if node.is_list:
        listed = (unmarked(item, [*trail, str(i)]) for i, item in enumerate(node.value))
        return Node(tuple(listed), node.place)
    return Node(node.value, node.place)


def _merge_mappings(base: Node, over: Node, trail: Sequence[str]) -> Node:
    merged: dict[Key, Node] = dict(base.value)
    for key, item in over.value.items():
        here = [*trail, str(key)]
        if item.mark is Mark.REMOVE:
            if key not in merged:
                raise _nothing_to_remove(f"{item.place.text}: ", here, nearest(str(key), names_in(base)))
            del merged[key]
        elif key not in merged:
            merged[key] = unmarked(item, here)
        elif item.place.kind is not PlaceKind.COMPUTED or item.is_mapping and merged[key].is_mapping:
            merged[key] = merge(merged[key], item, here)
    return Node(merged, base.place)


def _merge_keyed_lists(base: Node, over: Node, trail: Sequence[str]) -> Node:
    for side in (base, over):
        for key in names_in(side):
            indices = positions(side.value, key)
            if len(indices) > 1:
                raise ConfigError(
                    f"{side.place.text}: {dotted(trail)}: {key!r} occurs {len(indices)} times (items "
                    f"{', '.join(map(str, indices))}), so the list cannot be merged by key. {_replace_fix(trail)}",
                    code="duplicate_key",
                )
    items: dict[Key, Node] = {next(iter(item.value)): item for item in base.value}
    for item in over.value:
        ((key, value),) = item.value.items()
        if key in items and value.mark is Mark.REMOVE:
            del items[key]
        elif key in items:
            items[key] = _merge_mappings(items[key], item, trail)
        elif value.mark is Mark.REMOVE:
            hint = nearest(str(key), names_in(base))
            raise _nothing_to_remove(f"{value.place.text}: ", [*trail, str(key)], hint)
        else:
            _refuse_new_item(str(key), trail, item)
            items[key] = unmarked(item, [*trail, str(key)])
    return Node(tuple(items.values()), base.place)


def _replace_fix(trail: Sequence[str]) -> str:
    return f"To replace the whole list, write `{trail[-1] if trail else 'KEY'}: !replace [...]`."
