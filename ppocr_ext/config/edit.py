"""Set or remove the value at a path of a config tree."""

from __future__ import annotations

from collections.abc import Sequence

from ppocr_ext.config.node import Key, Mark, Node, dotted, key_in, names_in, nearest, position
from ppocr_ext.errors import ConfigError

ORDERED_LISTS = frozenset({"transforms"})  # lists of single-key mappings in which order changes the meaning


def assign(root: Node, parts: Sequence[str], value: Node, append: bool = False) -> Node:
    """``root`` with ``value`` at the path; missing or empty (``null``) mappings on the way are made.

    A value marked `Mark.REMOVE` takes away what is there, and the item of a list that it leaves empty.

    Args:
        root: the tree; not changed.
        parts: components of the path; a list is entered by index or by the key of one of its items.
        value: what to put there.
        append: a key that a list of single-key mappings lacks becomes a new item at its end.

    Raises:
        ConfigError: the path goes through a scalar or into a list that has no such item, or there is
            nothing to remove.
    """
    return _assign(root, tuple(parts), 0, value, append)


def _assign(node: Node, parts: tuple[str, ...], at: int, value: Node, append: bool) -> Node:
    if at == len(parts):
        return value
    if node.value is None:
        node = Node({}, value.place)
    if node.is_mapping:
        return _assign_in_mapping(node, parts, at, value, append)
    if node.is_list:
        return _assign_in_list(node, parts, at, value, append)
    raise ConfigError(
        f"{dotted(parts)}: {dotted(parts[:at])} is {node.value!r} ({node.place.text}), which has nothing "
        f"below it; set that instead."
    )


def _assign_in_mapping(node: Node, parts: tuple[str, ...], at: int, value: Node, append: bool) -> Node:
    key = key_in(node.value, parts[at])
    if value.mark is Mark.REMOVE and key not in node.value:
        raise ConfigError(f"{dotted(parts)}: nothing to remove there.{nearest(parts[at], names_in(node))}")
    below = node.value.get(key) or Node(None, value.place)
    changed = _assign(below, parts, at + 1, value, append)
    items: dict[Key, Node] = {**node.value, key: changed}
    if changed.mark is Mark.REMOVE:
        del items[key]
    return Node(items, node.place)


def _assign_in_list(node: Node, parts: tuple[str, ...], at: int, value: Node, append: bool) -> Node:
    part, trail = parts[at], parts[:at]
    index = position(node, part, trail)
    if index is None:
        if not (append and node.is_keyed_list and not part.isdecimal() and value.mark is not Mark.REMOVE):
            raise ConfigError(f"{dotted(parts)}: {_no_item(node, part, trail)}")
        refuse_new_item(part, trail, value)
        return Node((*node.value, _assign(Node({}, value.place), parts, at, value, append)), node.place)
    # By key the item itself holds the key, so the same component is looked up again one level down.
    changed = _assign(node.value[index], parts, at + part.isdecimal(), value, append)
    emptied = changed.is_mapping and not changed.value and value.mark is Mark.REMOVE
    kept = () if changed.mark is Mark.REMOVE or emptied else (changed,)
    return Node((*node.value[:index], *kept, *node.value[index + 1 :]), node.place)


def refuse_new_item(key: str, trail: Sequence[str], value: Node) -> None:
    """Refuse a new item in a list whose order matters.

    Raises:
        ConfigError: ``trail`` ends with the name of such a list.
    """
    if trail and trail[-1] in ORDERED_LISTS:
        raise ConfigError(
            f"{value.place.text}: {dotted(trail)} has no {key!r} and cannot be added to, since its order "
            f"matters. Write the whole list: `{trail[-1]}: !replace [...]`."
        )


def _no_item(node: Node, part: str, trail: Sequence[str]) -> str:
    where = dotted(trail)
    if part.isdecimal():
        return f"{where} has {len(node.value)} items, counted from 0."
    return f"{where} is a list without {part!r}.{nearest(part, names_in(node))}"
