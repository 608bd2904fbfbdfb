"""`Config`: a resolved configuration that never changes."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.config import yaml_io
from ppocr_ext.config.global_keys import DEVICES, GLOBAL_KEYS, Settings
from ppocr_ext.config.node import (
    COMPUTED,
    Mark,
    Node,
    PathLike,
    Place,
    PlaceKind,
    assign,
    child,
    dotted,
    find,
    merge,
    missing,
    names_in,
    nearest,
    plain_copy,
    split,
    unmarked,
)
from ppocr_ext.config.yaml_io import read_file, read_value
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.resources import find_config
from ppocr_ext.limits import MAX_CONFIG_FILES
from ppocr_ext.messages import LOG, did_you_mean

COMPUTED_KEY = "computed"  # key of the list of computed paths in a run's config.yml
_SCALARS = (str, int, float, bool, bytes, datetime.date, type(None))
_REQUIRED: Any = object()


class Config(Mapping[Any, Any]):
    """Read-only view of a configuration; nested mappings are `Config`, lists are tuples.

    Two configs, or a config and a dict, are equal if their contents are. Paths are ``"A.b.c"``, through
    lists by index or by the key of an item (``"Loss.loss_config_list.CTCLoss.weight"``), or a sequence
    of components.

    Args:
        values: plain mappings, lists and scalars.
        origin: the source of the values, for messages; None if they are computed.
    """

    __slots__ = ("_node",)
    _node: Node
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Mapping[Any, Any] | None = None, origin: str | None = None) -> None:
        object.__setattr__(
            self, "_node", from_plain(values or {}, COMPUTED if origin is None else Place(origin, origin))
        )

    @classmethod
    def of(cls, node: Node) -> Config:
        """Return the view of a tree whose root is a mapping."""
        config = cls()
        object.__setattr__(config, "_node", node)
        return config

    def __getitem__(self, key: Any) -> Any:
        return _view(self._node.value[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._node.value)

    def __len__(self) -> int:
        return len(self._node.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self.thaw() == plain_copy(other)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a Config does not change; use with_values, or thaw for a copy of plain dicts")

    def __reduce__(self) -> tuple[Any, ...]:
        return (Config.of, (self._node,))

    def __repr__(self) -> str:
        return f"Config({self.thaw()!r})"

    def thaw(self) -> dict[Any, Any]:
        """Return plain dicts and lists, a deep copy that may be changed."""
        plain: dict[Any, Any] = plain_copy(self._node)
        return plain

    def at(self, path: PathLike, default: Any = _REQUIRED) -> Any:
        """Return the value at a path; ``default`` if there is none (a written ``null`` is None).

        Raises:
            ConfigError: there is none and no ``default``, or a key of the path occurs twice in a list.
        """
        node = self.node(path)
        if node is None and default is _REQUIRED:
            raise ConfigError(missing(self._node, split(path)), code="missing_key")
        return default if node is None else _view(node)

    @property
    def settings(self) -> Settings:
        """Return the keys of ``Global`` with their types; reading a wrong value raises a ConfigError."""
        return Settings(self._of_global)

    def _of_global(self, name: str) -> Any:
        key = GLOBAL_KEYS[name]
        path = f"Global.{name}"
        value = self.at(path, None)
        if (problem := key.problem(value)) is not None:
            raise ConfigError(f"{self.where(path)}: {path}: {problem.message}", code=problem.code)
        return key.default if value is None else value

    def host_options(self) -> dict[str, Any]:
        """Return a copy of ``Global`` for PaddleOCR's encoders and decoders; it may be changed."""
        section = self.at("Global", None)
        return section.thaw() if isinstance(section, Config) else {}

    def asked_devices(self) -> list[str]:
        """Return the kinds of device, such as ``gpu``, whose key ``Global.use_KIND`` is true."""
        return [kind for kind in DEVICES if self.at(f"Global.use_{kind}", None) is True]

    def where(self, path: PathLike) -> str:
        """Return the place for messages: ``file.yml:12``, ``-o A.b=1``, ``-o +A.b=1``, ``computed``.

        A computed value has the place of the value from which it is computed, if there is one.
        """
        return self.place(path).text

    def place(self, path: PathLike) -> Place:
        """Return the `Place` of the value at a path.

        Raises:
            ConfigError: there is no value.
        """
        if (node := self.node(path)) is None:
            raise ConfigError(missing(self._node, split(path)), code="missing_key")
        return node.place

    def with_values(self, values: Mapping[Any, Any], *, computed_from: PathLike | None = None) -> Config:
        """Return a config with the value of each path replaced; missing mappings on the way are added.

        Args:
            values: values by path. A `Config` or a `Node` in them keeps its places.
            computed_from: path of the value from which they are computed; they get its place.

        Raises:
            ConfigError: a path goes through a scalar, or into a list without the item.
        """
        source = None if computed_from is None else self.node(computed_from)
        place = COMPUTED if source is None else source.place.computed()
        root = self._node
        for path, value in values.items():
            root = assign(root, split(path), from_plain(value, place))
        return Config.of(root)

    def without(self, paths: Iterable[PathLike]) -> Config:
        """Return a config without the values at ``paths``; a path without a value is ignored."""
        root = self._node
        for path in paths:
            if find(root, split(path)) is not None:
                root = assign(root, split(path), Node(None, COMPUTED, Mark.REMOVE))
        return Config.of(root)

    def node(self, path: PathLike) -> Node | None:
        """Return the tree at a path, or None if there is none."""
        return find(self._node, split(path))

    def to_yaml(self, *, origins: bool = False) -> str:
        """Return YAML from which any safe loader reads the same values: keys in their order, no anchors, no tags.

        With ``origins`` each line ends with the place of its value: ``# my.yml:12``.
        """
        return yaml_io.dump_with_places(self._node) if origins else yaml_io.dump(self.thaw())

    def with_computed(self, values: Mapping[tuple[str, ...], Any], source: str) -> Config:
        """Return a config with ``values`` by path, and their paths added to its list ``computed``.

        Args:
            values: values that are computed from the value at ``source``; they get its place.
            source: path of that value.
        """
        if not values:
            return self
        paths = list(self.at(COMPUTED_KEY, default=()))
        for path in values:  # list the shortest part of each path that is missing, or the whole path
            shorter = (path[:end] for end in range(1, len(path)))
            paths.append(dotted(next((part for part in shorter if self.node(part) is None), path)))
        listed = {(COMPUTED_KEY,): list(dict.fromkeys(paths))}
        return self.with_values({**values, **listed}, computed_from=source)


def from_plain(value: Any, place: Place = COMPUTED) -> Node:
    """Return the tree of plain values, all with the place ``place``; a `Config` or `Node` in them keeps its places."""
    if isinstance(value, Config):
        return value._node
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


def _view(node: Node) -> Any:
    if node.is_mapping:
        return Config.of(node)
    return tuple(_view(item) for item in node.value) if node.is_list else node.value


def named_items(config: Config, *path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield name and path of each single-key mapping (``- NAME: {options}``) of the list at ``path``.

    The path has the name of the item, as after ``-o``, or its index if the name occurs twice.
    """
    try:
        entries = config.at(path, None)
    except ConfigError:  # a key occurs twice in a list on the way
        return
    if not isinstance(entries, tuple):
        return
    names = [str(next(iter(e))) if isinstance(e, Mapping) and len(e) == 1 else None for e in entries]
    for index, name in enumerate(names):
        if name is not None:
            yield name, (*path, name) if names.count(name) == 1 else (*path, str(index), name)


_BASE = "_BASE_"


def load(paths: str | Path | Iterable[str | Path], overrides: Iterable[str] = ()) -> Config:
    """Read one or more files, each overlaid on those before it, then apply ``-o`` options.

    A file may name base files: ``_BASE_: other.yml``, or a list, relative to itself. If a file whose name starts with
    ``configs/`` is missing, the shipped file is read.
    For overlays see `node.merge`, for options `override`. An anchor (``&bs``) is resolved when its file is read: an
    option for its value does not change the copies at ``*bs``. Values that a file lists under ``computed`` are not
    read, but computed again, unless another file or an option sets them.

    Raises:
        ConfigError: a file or an option cannot be used; the message starts with ``file:line`` or with
            the option.
    """
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not files:
        raise ConfigError("No config file. Fix: give one or more with `-c FILE …`.", code="missing_option")
    root = Node({})
    sources: list[Path] = []
    for path in files:
        root = merge(root, _read_with_bases(Path(path), sources))
    return Config.of(_without_computed(override(root, overrides)) or Node({}))


def _read_with_bases(path: Path, files: list[Path], readers: tuple[Path, ...] = ()) -> Node:
    """Return the tree of a file, overlaid on its base files if it names some.

    A file without bases keeps its marks (`Mark`), since it may itself be overlaid on others.

    Args:
        path: the file.
        files: all files that were read so far; this one and its bases are added.
        readers: the files that led here, each the base of the one before it.
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
    """Return the tree of a file without its list ``computed``; the listed values are marked as computed.

    Raises:
        ConfigError: the list is not a list of paths.
    """
    if (listed := root.value.get(COMPUTED_KEY)) is None:
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
    """Return the tree without its computed values; a computed mapping stays if it holds another value."""
    computed = node.place.kind is PlaceKind.COMPUTED
    if node.is_mapping:
        kept = {key: _without_computed(item) for key, item in node.value.items()}
        items = {key: item for key, item in kept.items() if item is not None}
        return None if computed and not items else Node(items, node.place)
    if computed or not node.is_list:
        return None if computed else node
    return Node(tuple(item for item in map(_without_computed, node.value) if item is not None), node.place)


def override(root: Node, options: Iterable[str]) -> Node:
    """Return ``root`` with the options applied in their order; the last option for a path wins.

    An option is ``path=value``. The path enters mappings by key, and lists by index or by the key of an item. The
    value is the text after the first ``=``, read as YAML (empty is ``null``), and replaces the value at the path.
    ``path=!remove`` removes it. A mapping for a whole section (``Global={epoch_num: 3}``) updates its keys, as in
    PaddleOCR; ``!replace {…}`` replaces the section.

    The first component must be in the config, since nothing reads an unknown section. ``+path=value`` adds it, and
    appends a missing item to a list of single-key mappings.

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
            hint = did_you_mean(next(below, None)) or nearest(parts[0], names_in(root))
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
        LOG.warning(  # without its name, a component would be another one
            "%s: the mapping replaces %s, and so its name: %s. Fix: set single keys (`%s.KEY=…`), or write "
            "`!replace {…}`.", value.place.text, dotted(parts), before.value["name"].value, dotted(parts),
        )  # fmt: skip
    return assign(root, parts, value if value.mark is Mark.REMOVE else unmarked(value), append)
