"""Read configs: files with their bases, overlays and ``-o`` options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ppocr_ext.config.config_view import COMPUTED_KEY, Config
from ppocr_ext.config.edit import assign, merge, override
from ppocr_ext.config.node import Mark, Node, PlaceKind, find
from ppocr_ext.config.yaml_io import read_file
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.resources import find_config
from ppocr_ext.limits import MAX_CONFIG_FILES

_BASE = "_BASE_"


def load(paths: str | Path | Iterable[str | Path], overrides: Iterable[str] = ()) -> Config:
    """Read one or more files, each overlaid on those before it, then apply ``-o`` options.

    A file may name others that it builds on: ``_BASE_: other.yml``, or a list, relative to itself; a missing
    file whose name starts with ``configs/`` is the shipped one.
    For overlays see `edit.merge`, for options `edit.override`. An anchor (``&bs``) is resolved when its file is
    read: an option changes the value that it names, not those that were copied from it by ``*bs``. Values that a
    file lists under ``computed`` are not read: they are computed again, unless another file or an option sets them.

    Raises:
        ConfigError: a file or an option cannot be used; the message starts with ``file:line`` or with
            the option.
    """
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not files:
        raise ConfigError("No config file. Fix: give one or more with `-c FILE …`.", code="missing_option")
    root = Node({})
    read: list[Path] = []
    for path in files:
        root = merge(root, _read_with_bases(Path(path), read))
    return Config.of(_without_computed(override(root, overrides)) or Node({}))


def _read_with_bases(path: Path, files: list[Path], readers: tuple[Path, ...] = ()) -> Node:
    """Return the tree of a file, with its marks, or overlaid on its bases if it names some.

    Args:
        path: the file.
        files: all that were read so far; this one and its bases are added.
        readers: the files that led to this one.
    """
    if path.resolve() in readers:
        cycle = (*readers[readers.index(path.resolve()) :], path)
        raise ConfigError(
            f"{path}: `{_BASE}` forms a cycle: {' → '.join(str(p) for p in cycle)}.", code="base_cycle"
        )
    files.append(path)
    if len(files) > MAX_CONFIG_FILES:
        raise ConfigError(
            f"{path}: the config has more than {MAX_CONFIG_FILES} files with its bases, the limit. Fix: name each "
            f"base once.",
            code="too_many_files",
        )
    node = _mark_computed(read_file(path))
    if _BASE not in node.value:
        return node
    own = {key: item for key, item in node.value.items() if key != _BASE}
    bases = Node({})
    named = node.value[_BASE]
    for item in named.value if named.is_list else (named,):
        if not isinstance(item.value, str):
            raise ConfigError(
                f"{item.place.text}: `{_BASE}` must be a file name or a list of them.", code="bad_value"
            )
        try:
            below = _read_with_bases(find_config(item.value, path.parent), files, (*readers, path.resolve()))
        except ConfigError as error:
            raise ConfigError(f"{error} (from `{_BASE}` in {item.place.text})", code=error.code) from error
        bases = merge(bases, below)
    return merge(bases, Node(own, node.place))


def _mark_computed(root: Node) -> Node:
    """Return the tree of a file without its list ``computed``; the values that it names get that kind.

    Raises:
        ConfigError: the list is not a list of paths.
    """
    listed = root.value.get(COMPUTED_KEY)
    if listed is None:
        return root
    if not listed.is_list or not all(isinstance(item.value, str) for item in listed.value):
        raise ConfigError(
            f"{listed.place.text}: `{COMPUTED_KEY}` must be a list of paths. Fix: remove it.",
            code="bad_value",
        )
    root = Node({key: item for key, item in root.value.items() if key != COMPUTED_KEY}, root.place)
    for item in listed.value:
        parts = tuple(item.value.split("."))
        try:
            node = find(root, parts)
        except ConfigError as error:
            raise ConfigError(f"{item.place.text}: {COMPUTED_KEY}: {error}", code=error.code) from error
        if node is not None and node.mark is Mark.NONE:
            root = assign(root, parts, _as_computed(node))
    return root


def _as_computed(node: Node) -> Node:
    value = node.value
    if node.is_mapping:
        value = {key: _as_computed(item) for key, item in value.items()}
    elif node.is_list:
        value = tuple(map(_as_computed, value))
    return Node(value, node.place.computed(), node.mark)


def _without_computed(node: Node) -> Node | None:
    """Return the tree without its computed values; a mapping that holds another value stays."""
    computed = node.place.kind is PlaceKind.COMPUTED
    if node.is_mapping:
        kept = {key: _without_computed(item) for key, item in node.value.items()}
        items = {key: item for key, item in kept.items() if item is not None}
        return None if computed and not items else Node(items, node.place)
    if computed or not node.is_list:
        return None if computed else node
    return Node(tuple(item for item in map(_without_computed, node.value) if item is not None), node.place)
