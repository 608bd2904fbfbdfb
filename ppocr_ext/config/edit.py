"""Change a config tree: set a value, overlay another tree, apply ``-o`` options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ppocr_ext.config.node import (
    Key,
    Mark,
    Node,
    Place,
    PlaceKind,
    child,
    dotted,
    find,
    key_in,
    names_in,
    nearest,
    position,
    positions,
    split,
)
from ppocr_ext.config.yaml_io import read_value
from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import LOG, did_you_mean

ORDERED_LISTS = frozenset({"transforms"})  # lists of single-key mappings whose order changes the meaning


def assign(node: Node, parts: tuple[str, ...], value: Node, append: bool = False, at: int = 0) -> Node:
    """Return ``node`` with ``value`` at the path; missing or empty (``null``) mappings on the way are added.

    A value marked `Mark.REMOVE` removes what is there, and the list item that it leaves empty.

    Args:
        node: the tree; not changed.
        parts: components of the path; a list is entered by index or by the key of one of its items.
        value: the new value.
        append: a key that a list of single-key mappings lacks becomes a new item at its end.
        at: how many components of the path lead to ``node``.

    Raises:
        ConfigError: the path goes through a scalar or into a list without the item, or there is
            nothing to remove.
    """
    if at == len(parts):
        return value
    if node.value is None:
        node = Node({}, value.place)
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
    index = position(node, part, trail)
    if index is None:
        if not (append and node.is_keyed_list and not part.isdecimal() and value.mark is not Mark.REMOVE):
            found = (
                f"has {len(node.value)} items, counted from 0."
                if part.isdecimal()
                else f"is a list without {part!r}.{nearest(part, names_in(node))}"
            )
            raise ConfigError(f"{dotted(parts)}: {dotted(trail)} {found}", code="missing_item")
        _refuse_new_item(part, trail, value)
        return Node((*node.value, assign(Node({}, value.place), parts, value, append, at)), node.place)
    # by key, the item itself holds the key: the same component is looked up again one level below
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
    - Other lists and scalars replace what is there.
    - ``KEY: !remove`` removes the key, or the item of the list.
    - ``KEY: !replace [...]`` replaces the base's value by a list or mapping.
    - A computed value of ``over`` replaces nothing.

    Raises:
        ConfigError: nothing is there to remove; a key occurs twice in one of two lists that should
            merge by key; an item has several keys where the base's have one.
    """
    if over.mark is Mark.NONE:
        if base.is_mapping and over.is_mapping:
            return _merge_mappings(base, over, trail)
        if base.is_keyed_list and over.is_keyed_list:
            return _merge_keyed_lists(base, over, trail)
        for index, item in enumerate(over.value if base.is_keyed_list and over.is_list else ()):
            if item.is_mapping and len(item.value) > 1:  # usually its options lack their indentation
                raise ConfigError(
                    f"{item.place.text}: {dotted(trail)}: item {index} has the keys {', '.join(names_in(item))}, "
                    f"but the items of the list below it have one each. Fix: indent its options below its name. "
                    f"{_replace_fix(trail)}",
                    code="several_keys",
                )
    return _unmarked(over, trail)


def _unmarked(node: Node, trail: Sequence[str] = ()) -> Node:
    """Return a tree that is overlaid on nothing, without its marks.

    Raises:
        ConfigError: the tree has a ``!remove``.
    """
    if node.mark is Mark.REMOVE:
        raise _nothing_to_remove(f"{node.place.text}: ", trail)
    if node.is_mapping:
        items = {key: _unmarked(item, [*trail, str(key)]) for key, item in node.value.items()}
        return Node(items, node.place)
    if node.is_list:
        listed = (_unmarked(item, [*trail, str(i)]) for i, item in enumerate(node.value))
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
            merged[key] = _unmarked(item, here)
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
            items[key] = _unmarked(item, [*trail, str(key)])
    return Node(tuple(items.values()), base.place)


def _replace_fix(trail: Sequence[str]) -> str:
    return f"To replace the whole list, write `{trail[-1] if trail else 'KEY'}: !replace [...]`."


def override(root: Node, options: Iterable[str]) -> Node:
    """Return ``root`` with options applied, one after the other; a later one of the same path wins.

    An option is ``path=value``. The path goes through mappings by key and through lists by index or by
    the key of an item; the value is the text after the first ``=``, read as YAML (empty is ``null``),
    and replaces what is there. ``path=!remove`` removes it. A mapping for a whole section
    (``Global={epoch_num: 3}``) updates its keys, as in PaddleOCR; ``!replace {…}`` does not.

    The first component must be in the config: a section that nothing reads would have no effect.
    ``+path=value`` adds it, and appends a missing item to a list of single-key mappings.

    Raises:
        ConfigError: an option has no ``=``, its value is not YAML, its path cannot be followed, or its
            first component is unknown. The message starts with the option.
    """
    for option in options:
        root = _apply(root, option)
    return root


def _apply(root: Node, option: str) -> Node:
    path, equals, text = option.strip().partition("=")
    shown = f"-o {option.strip()}"
    if not equals:
        raise ConfigError(
            f"{shown}: not an option (expected `path=value`, such as `Global.epoch_num=20`).",
            code="bad_option",
        )
    forced = path.startswith("+")
    try:
        parts = split(path.removeprefix("+").strip())
        kind = PlaceKind.FORCED_OPTION if forced else PlaceKind.OPTION
        value = read_value(text, Place("-o", shown, kind, parts))
        section = child(root, parts, 0)
        if section is None and not forced:
            below = (dotted((key, parts[0])) for key, item in root.value.items() if child(item, parts, 0))
            section_of_key = next(below, None)
            hint = did_you_mean(section_of_key) or nearest(parts[0], names_in(root))
            raise ConfigError(
                f"the config has no section {parts[0]!r}.{hint} `+{dotted(parts)}=…` adds it.",
                code="unknown_section",
            )
        updates = len(parts) == 1 and value.is_mapping and value.mark is Mark.NONE
        if section is None or not (updates and section.is_mapping):
            return _set(root, parts, value, append=forced)
        for key, item in value.value.items():
            root = _set(root, (*parts, str(key)), item)
        return root
    except ConfigError as error:
        raise ConfigError(f"{shown}: {str(error).removeprefix(f'{shown}: ')}", code=error.code) from error


def _set(root: Node, parts: tuple[str, ...], value: Node, append: bool = False) -> Node:
    before = find(root, parts)
    is_replaced = value.is_mapping and value.mark is Mark.NONE and "name" not in value.value
    if is_replaced and before is not None and before.is_mapping and "name" in before.value:
        LOG.warning(  # a component without its name is another one
            "%s: the mapping replaces %s, and so its name: %s. Fix: set single keys (`%s.KEY=…`), or write "
            "`!replace {…}`.", value.place.text, dotted(parts), before.value["name"].value, dotted(parts),
        )  # fmt: skip
    return assign(root, parts, value if value.mark is Mark.REMOVE else _unmarked(value), append)
