"""`Config`: a resolved configuration that does not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.config import yaml_io
from ppocr_ext.config.annotate import annotated
from ppocr_ext.config.computed import drop_computed, mark_computed
from ppocr_ext.config.edit import assign
from ppocr_ext.config.merge import merge
from ppocr_ext.config.node import (
    COMPUTED,
    Node,
    PathLike,
    Place,
    PlaceKind,
    dotted,
    find,
    from_plain,
    missing,
    split,
    to_plain,
)
from ppocr_ext.config.override import override
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.resources import find_config

_BASE = "_BASE_"
_REQUIRED: Any = object()


class Config(Mapping[Any, Any]):
    """Read-only view of a configuration; nested mappings are `Config`, lists are tuples.

    Two configs, or a config and a dict, are equal when their content is. Paths are ``"A.b.c"``, through
    lists by index or by the key of an item (``"Loss.loss_config_list.CTCLoss.weight"``), or a sequence
    of components.

    Args:
        values: plain mappings, lists and scalars.
        origin: name of what they come from; None: they are computed.
    """

    __slots__ = ("_node",)
    _node: Node
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: Mapping[Any, Any] | None = None, origin: str | None = None) -> None:
        object.__setattr__(self, "_node", from_plain(_with_nodes(values or {}), _named(origin)))

    @classmethod
    def of(cls, node: Node) -> Config:
        """View of a tree whose root is a mapping."""
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
        """Plain dicts and lists, a deep copy that may be changed."""
        plain: dict[Any, Any] = to_plain(self._node)
        return plain

    def at(self, path: PathLike, default: Any = _REQUIRED) -> Any:
        """The value at a path; ``default`` where there is none (a ``null`` that is there is None).

        Raises:
            ConfigError: there is none and no ``default``, or a key of the path stands twice in a list.
        """
        parts = split(path)
        node = find(self._node, parts)
        if node is None and default is _REQUIRED:
            raise ConfigError(f"{dotted(parts)}: {missing(self._node, parts)}")
        return default if node is None else _view(node)

    def origin(self, path: PathLike) -> str:
        """Where the value at a path comes from: the file as it was named, ``-o``, or ``computed``."""
        place = self.place(path)
        return COMPUTED.origin if place.kind is PlaceKind.COMPUTED else place.origin

    def where(self, path: PathLike) -> str:
        """The place for messages: ``file.yml:12``, ``-o A.b=1``, ``-o +A.b=1``, ``computed``.

        A computed value has the place of the value that it is derived from, if there is one.
        """
        return self.place(path).text

    def place(self, path: PathLike) -> Place:
        """Return the `Place` of the value at a path.

        Raises:
            ConfigError: there is no value.
        """
        parts = split(path)
        node = find(self._node, parts)
        if node is None:
            raise ConfigError(f"{dotted(parts)}: {missing(self._node, parts)}")
        return node.place

    def with_values(
        self, values: Mapping[Any, Any], origin: str | None = None, *, derived_from: PathLike | None = None
    ) -> Config:
        """A config with the value of each path replaced; mappings that lack on the way are made.

        Args:
            values: by path. A `Config` or a `Node`, also inside a list or a mapping, keeps its places.
            origin: name of what the values come from; None: they are computed.
            derived_from: path of the value that they are computed from; its place becomes theirs.

        Raises:
            ConfigError: a path goes through a scalar, or into a list that has no such item.
        """
        place = _named(origin)
        if derived_from is not None and find(self._node, split(derived_from)) is not None:
            place = self.place(derived_from).derived()
        root = self._node
        for path, value in values.items():
            root = assign(root, split(path), from_plain(_with_nodes(value), place))
        return Config.of(root)

    def node(self, path: PathLike) -> Node | None:
        """Return the value at a path with its places, or None where there is none."""
        return find(self._node, split(path))

    def to_yaml(self, *, origins: bool = False) -> str:
        """YAML that any safe loader reads back equal: keys in their order, no anchors, no tags.

        With ``origins`` each line ends with the place that its value comes from: ``# my.yml:12``.
        """
        return annotated(self._node) if origins else yaml_io.dump(self.thaw())


def _view(node: Node) -> Any:
    if node.is_mapping:
        return Config.of(node)
    if node.is_list:
        return tuple(_view(item) for item in node.value)
    return node.value


def _named(origin: str | None) -> Place:
    return COMPUTED if origin is None else Place(origin, origin)


def _with_nodes(value: Any) -> Any:
    """``value`` with each `Config` in it, at any depth, replaced by its tree."""
    if isinstance(value, Config):
        return value._node
    if isinstance(value, Mapping):
        return {key: _with_nodes(item) for key, item in value.items()}
    return [_with_nodes(item) for item in value] if isinstance(value, (list, tuple)) else value


def plain_copy(value: Any) -> Any:
    """Return a deep copy of mappings and sequences as plain dicts and lists, which may be changed."""
    if isinstance(value, Mapping):
        return {key: plain_copy(item) for key, item in value.items()}
    return [plain_copy(item) for item in value] if isinstance(value, (list, tuple)) else value


def load(paths: str | Path | Iterable[str | Path], overrides: Iterable[str] = ()) -> Config:
    """Read one or more files, each laid over those before it, then apply ``-o`` options.

    A file may name others that it builds on: ``_BASE_: other.yml``, or a list, relative to itself; a name that
    starts with ``configs/`` and is not there is the shipped file.
    For what an overlay can do see `merge.merge`, for the options `override.override`. An anchor
    (``&bs``) is resolved when its file is read: an option changes the value that it names, not those
    that were copied from it by ``*bs``. Values that a file lists under ``computed`` are not read: they are
    computed again, unless another file or an option gives them.

    Raises:
        ConfigError: a file or an option cannot be used; the message starts with ``file:line`` or with
            the option.
    """
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not files:
        raise ConfigError("No config file. Name one or more with `-c FILE …`.")
    root = Node({})
    for path in files:
        root = merge(root, _read_with_bases(Path(path)))
    return Config.of(drop_computed(override(root, overrides)))


def _read_with_bases(path: Path, readers: tuple[Path, ...] = ()) -> Node:
    """The tree of a file, still with its marks, or laid over its bases where it names some."""
    if path.resolve() in readers:
        circle = (*readers[readers.index(path.resolve()) :], path)
        raise ConfigError(f"{path}: `{_BASE}` goes in a circle: {' → '.join(str(p) for p in circle)}.")
    node = mark_computed(yaml_io.read_file(path))
    if _BASE not in node.value:
        return node
    own = {key: item for key, item in node.value.items() if key != _BASE}
    bases = Node({})
    for name, place in _base_names(node.value[_BASE]):
        try:
            below = _read_with_bases(find_config(name, path.parent), (*readers, path.resolve()))
        except ConfigError as error:
            raise ConfigError(f"{error} (from `{_BASE}` in {place.text})") from error
        bases = merge(bases, below)
    return merge(bases, Node(own, node.place))


def _base_names(node: Node) -> list[tuple[str, Place]]:
    items = node.value if node.is_list else (node,)
    for item in items:
        if not isinstance(item.value, str):
            raise ConfigError(f"{item.place.text}: `{_BASE}` takes a file name or a list of them.")
    return [(item.value, item.place) for item in items]
