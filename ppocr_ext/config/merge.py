"""Lay one config tree over another."""

from __future__ import annotations

from collections.abc import Sequence

from ppocr_ext.config.edit import refuse_new_item
from ppocr_ext.config.node import Key, Mark, Node, PlaceKind, dotted, names_in, nearest, positions
from ppocr_ext.errors import ConfigError

_REPLACE_HELP = "To put another list in its place write `{name}: !replace [...]`."


def merge(base: Node, over: Node, trail: Sequence[str] = ()) -> Node:
    """``base`` with ``over`` laid on it; neither is changed.

    - Mappings merge key by key.
    - Lists of single-key mappings (``head_list``, ``loss_config_list``) merge by key: the order of the
      base is kept, new keys are appended. ``transforms`` takes no new keys, since its order matters.
    - Other lists and scalars replace what is there.
    - ``KEY: !remove`` takes the key, or the item of the list, away.
    - ``KEY: !replace [...]`` puts a list or mapping in place of the base's, whatever that is.
    - A value of ``over`` that is computed replaces nothing.

    Raises:
        ConfigError: nothing is there to remove; a key stands twice in one of two lists that should
            merge by key; an item has several keys where the base's have one.
    """
    if over.mark is Mark.NONE:
        if base.is_mapping and over.is_mapping:
            return _merge_mappings(base, over, trail)
        if base.is_keyed_list and over.is_keyed_list:
            return _merge_keyed_lists(base, over, trail)
        if base.is_keyed_list and over.is_list:
            _refuse_several_keys(over, trail)
    return settle(over, trail)


def settle(node: Node, trail: Sequence[str] = ()) -> Node:
    """A tree that is laid over nothing: ``!replace`` has done its work, ``!remove`` finds nothing.

    Raises:
        ConfigError: the tree has a ``!remove``.
    """
    if node.mark is Mark.REMOVE:
        raise ConfigError(f"{node.place.text}: {dotted(trail)}: nothing to remove there.")
    if node.is_mapping:
        return Node({key: settle(item, [*trail, str(key)]) for key, item in node.value.items()}, node.place)
    if node.is_list:
        return Node(tuple(settle(item, [*trail, str(i)]) for i, item in enumerate(node.value)), node.place)
    return Node(node.value, node.place)


def _merge_mappings(base: Node, over: Node, trail: Sequence[str]) -> Node:
    merged: dict[Key, Node] = dict(base.value)
    for key, item in over.value.items():
        here = [*trail, str(key)]
        if item.mark is Mark.REMOVE:
            if key not in merged:
                _nothing_to_remove(item, here, base)
            del merged[key]
        elif key not in merged:
            merged[key] = settle(item, here)
        elif item.place.kind is not PlaceKind.COMPUTED or item.is_mapping and merged[key].is_mapping:
            merged[key] = merge(merged[key], item, here)
    return Node(merged, base.place)


def _merge_keyed_lists(base: Node, over: Node, trail: Sequence[str]) -> Node:
    for side in (base, over):
        _refuse_repeated_keys(side, trail)
    items: dict[Key, Node] = {next(iter(item.value)): item for item in base.value}
    for item in over.value:
        ((key, value),) = item.value.items()
        here = [*trail, str(key)]
        if key in items and value.mark is Mark.REMOVE:
            del items[key]
        elif key in items:
            items[key] = _merge_mappings(items[key], item, trail)
        elif value.mark is Mark.REMOVE:
            _nothing_to_remove(value, here, base)
        else:
            refuse_new_item(str(key), trail, item)
            items[key] = settle(item, here)
    return Node(tuple(items.values()), base.place)


def _nothing_to_remove(item: Node, here: Sequence[str], base: Node) -> None:
    raise ConfigError(
        f"{item.place.text}: {dotted(here)}: nothing to remove there.{nearest(here[-1], names_in(base))}"
    )


def _refuse_repeated_keys(node: Node, trail: Sequence[str]) -> None:
    for key in dict.fromkeys(names_in(node)):
        indices = positions(node.value, key)
        if len(indices) > 1:
            raise ConfigError(
                f"{node.place.text}: {dotted(trail)}: {key!r} stands {len(indices)} times (items "
                f"{', '.join(map(str, indices))}), so that the list cannot be merged by key. "
                f"{_REPLACE_HELP.format(name=trail[-1] if trail else 'KEY')}"
            )


def _refuse_several_keys(over: Node, trail: Sequence[str]) -> None:
    """A list item with several keys is most often one whose options lack their indentation."""
    for index, item in enumerate(over.value):
        if item.is_mapping and len(item.value) > 1:
            raise ConfigError(
                f"{item.place.text}: {dotted(trail)}: item {index} has the keys {', '.join(names_in(item))}, "
                f"but the items of the list below it have one each. Indent its options below its name. "
                f"{_REPLACE_HELP.format(name=trail[-1] if trail else 'KEY')}"
            )
