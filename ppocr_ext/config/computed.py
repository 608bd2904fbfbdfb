"""Values that the program computes: listed in the configs that it writes, and not taken as given when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ppocr_ext.config.edit import assign
from ppocr_ext.config.node import Mark, Node, PlaceKind, dotted, find
from ppocr_ext.errors import ConfigError

if TYPE_CHECKING:
    from ppocr_ext.config.config import Config

KEY = "computed"
_Path = tuple[str, ...]


def with_computed(config: Config, values: Mapping[_Path, Any], source: str) -> Config:
    """Return ``config`` with ``values`` by path, and their paths added to its list ``computed``.

    Args:
        config: the configuration; not changed.
        values: computed from the value at ``source``, whose place they get.
        source: path of that value.
    """
    if not values:
        return config
    paths = [*config.at(KEY, default=()), *(dotted(_made(config, path)) for path in values)]
    return config.with_values({**values, (KEY,): list(dict.fromkeys(paths))}, derived_from=source)


def _made(config: Config, path: _Path) -> _Path:
    """The part of ``path`` that goes as far as what the config lacks, or the whole path."""
    return next((path[:end] for end in range(1, len(path)) if config.node(path[:end]) is None), path)


def mark_computed(root: Node) -> Node:
    """Return the tree of a file without its list ``computed``; the values that it names are of that kind.

    Raises:
        ConfigError: the list is no list of paths.
    """
    listed = root.value.get(KEY)
    if listed is None:
        return root
    if not listed.is_list or not all(isinstance(item.value, str) for item in listed.value):
        raise ConfigError(f"{listed.place.text}: `{KEY}` must be a list of paths. Fix: remove it.")
    root = Node({key: item for key, item in root.value.items() if key != KEY}, root.place)
    for item in listed.value:
        parts = tuple(item.value.split("."))
        try:
            node = find(root, parts)
        except ConfigError as error:
            raise ConfigError(f"{item.place.text}: {KEY}: {error}") from error
        if node is not None and node.mark is Mark.NONE:
            root = assign(root, parts, _as_computed(node))
    return root


def _as_computed(node: Node) -> Node:
    value = node.value
    if node.is_mapping:
        value = {key: _as_computed(item) for key, item in value.items()}
    elif node.is_list:
        value = tuple(map(_as_computed, value))
    return Node(value, node.place.derived(), node.mark)


def drop_computed(root: Node) -> Node:
    """Return the tree without the values that are computed; a mapping that holds another value stays."""
    return _kept(root) or Node({}, root.place)


def _kept(node: Node) -> Node | None:
    computed = node.place.kind is PlaceKind.COMPUTED
    if node.is_mapping:
        items = {key: kept for key, item in node.value.items() if (kept := _kept(item)) is not None}
        return None if computed and not items else Node(items, node.place)
    if computed:
        return None
    if node.is_list:
        return Node(tuple(kept for item in node.value if (kept := _kept(item)) is not None), node.place)
    return node
