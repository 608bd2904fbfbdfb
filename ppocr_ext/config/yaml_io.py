"""YAML in and out: safe, with line numbers, and floats as people write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ppocr_ext.config.node import Key, Mark, Node, Place
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.resources import shown_path

MAX_VALUES = 100_000  # aliases are copied out; a file that grows beyond this is a trap or a mistake
_MERGE_TAG = "tag:yaml.org,2002:merge"
_MARKS = {mark.value: mark for mark in (Mark.REMOVE, Mark.REPLACE)}
_TAG_HELP = "Only plain YAML, `!remove` and `!replace` are read."
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """SafeLoader to which ``1e-3`` is a float (to YAML 1.1 it is a string) and ``=`` a string."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper without anchors, quoting what `_Loader` or SafeLoader would take for a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    short = not any(isinstance(item, dict) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


def _represent_str(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # PyYAML writes these as they are between single quotes and reads them back as line breaks.
    style = '"' if any(mark in text for mark in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(str, _represent_str)


class _LineDumper(_Dumper):
    """Lists and mappings in brackets, whatever they hold."""


_LineDumper.add_representer(
    list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)


def dump(plain: Any) -> str:
    """YAML text of plain dicts, lists and scalars: keys in their order, no anchors, no tags of Python's."""
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def dump_line(value: Any) -> str:
    """A scalar, or a list or mapping in brackets, as YAML on one line that may stand behind ``key:`` or ``-``."""
    quoted = isinstance(value, str) and any(mark in value for mark in "\n\r")
    text = yaml.dump(
        [value],
        Dumper=_LineDumper,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
        default_flow_style=True,
        default_style='"' if quoted else None,
    )
    return text.rstrip("\n")[1:-1]


def read_file(path: Path) -> Node:
    """The tree of a file, which must hold one mapping.

    Raises:
        ConfigError: the file is missing, not UTF-8, empty, not YAML, not a mapping, has a key twice in
            one mapping, or asks for a Python object. The message starts with ``file:line``.
    """
    shown = shown_path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        hint = " Is that an option? Put -o before it." if "=" in str(path) else ""
        raise ConfigError(f"{path}: the config cannot be read: {error.strerror or error}.{hint}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown}:{line}: not UTF-8 at byte {error.start}. Save the file as UTF-8."
        ) from error
    node = _Reader(shown).read(text)
    if node is None:
        raise ConfigError(f"{shown}: the config is empty.")
    if not node.is_mapping:
        raise ConfigError(f"{node.place.text}: a config is a mapping of sections (`Global:` …), not this.")
    return node


def read_value(text: str, place: Place) -> Node:
    """The tree of the value of an option; nothing at all is ``null``.

    Raises:
        ConfigError: it is not YAML; the message starts with ``place.text``.
    """
    return _Reader(place.origin, place).read(text) or Node(None, place)


class _Reader:
    """Turns YAML text into a tree.

    Args:
        origin: what the values say they come from.
        place: the place of all values; None gives each its file and line.
    """

    def __init__(self, origin: str, place: Place | None = None) -> None:
        self._origin, self._place = origin, place
        self._values = 0
        self._open: list[yaml.Node] = []

    def read(self, text: str) -> Node | None:
        """The tree, or None where the text holds nothing."""
        try:
            self._loader = _Loader(text)
            root = self._loader.get_single_node()
            return None if root is None else self._build(root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line if mark else 0
            problem = ", ".join(part for part in (error.context, error.problem) if part)
            hint = " An anchor holds within one file only." if "undefined alias" in problem else ""
            raise ConfigError(f"{self._at(line)}: not valid YAML: {problem}.{hint}") from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position)
            raise ConfigError(
                f"{self._at(line)}: not valid YAML: {error.reason}: {error.character!r}."
            ) from error
        except RecursionError as error:
            raise ConfigError(f"{self._at(0)}: nested too deeply to be read.") from error

    def _at(self, line: int) -> str:
        return self._place.text if self._place else f"{self._origin}:{line + 1}"

    def _here(self, node: yaml.Node) -> Place:
        return self._place or Place(self._origin, self._at(node.start_mark.line))

    def _build(self, node: yaml.Node) -> Node:
        place = self._here(node)
        self._count(1, place)
        if any(node is outer for outer in self._open):
            raise ConfigError(f"{place.text}: the value is an alias of what it stands in.")
        mark = _MARKS.get(node.tag, Mark.NONE)
        if mark is Mark.REMOVE:
            return Node(None, place, mark)
        if isinstance(node, yaml.ScalarNode):
            if mark is Mark.REPLACE:
                raise ConfigError(
                    f"{place.text}: `!replace` goes before a list or a mapping; a scalar replaces."
                )
            return Node(self._scalar(node, place), place)
        self._refuse_tag(node, place, mark)
        self._open.append(node)
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = {key: self._build(item) for key, item in self._pairs(node).items()}
        else:
            value = tuple(self._build(item) for item in node.value)
        self._open.pop()
        return Node(value, place, mark)

    def _count(self, values: int, place: Place) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise ConfigError(f"{place.text}: the aliases expand to more than {MAX_VALUES} values.")

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        try:
            return self._loader.construct_object(node)
        except yaml.constructor.ConstructorError as error:
            raise ConfigError(f"{place.text}: {error.problem}. {_TAG_HELP}") from error
        except ValueError as error:
            raise ConfigError(f"{place.text}: {node.value!r} cannot be read: {error}. Quote it.") from error

    def _refuse_tag(self, node: yaml.Node, place: Place, mark: Mark) -> None:
        plain = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
        if mark is Mark.NONE and node.tag not in plain:
            raise ConfigError(f"{place.text}: the tag {node.tag!r} is not allowed. {_TAG_HELP}")

    def _pairs(self, node: yaml.MappingNode) -> dict[Key, yaml.Node]:
        """Keys with their nodes: those that ``<<`` brings in first, as PyYAML orders them, then its own."""
        merged: dict[Key, yaml.Node] = {}
        own: dict[Key, yaml.Node] = {}
        lines: dict[Any, int] = {}
        for key_node, item in node.value:
            is_merge = key_node.tag == _MERGE_TAG
            key = "<<" if is_merge else self._key(key_node)
            if key in lines:
                help_ = "Write `<<: [*a, *b]`." if is_merge else "Keep one of them."
                raise ConfigError(
                    f"{self._here(key_node).text}: the key {key!r} stands twice in one mapping, first on "
                    f"line {lines[key]}. {help_}"
                )
            lines[key] = key_node.start_mark.line + 1
            if is_merge:
                merged = self._merged(item)
            else:
                own[key] = item
        return {**merged, **own}

    def _merged(self, node: yaml.Node) -> dict[Key, yaml.Node]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        pairs: dict[Key, yaml.Node] = {}
        for source in reversed(sources):  # of several sources the first wins
            place = self._here(source)
            if not isinstance(source, yaml.MappingNode):
                raise ConfigError(f"{place.text}: `<<` takes a mapping or a list of mappings.")
            if any(source is outer for outer in self._open):
                raise ConfigError(f"{place.text}: `<<` names a mapping that it stands in.")
            self._count(len(source.value), place)
            self._open.append(source)
            pairs.update(self._pairs(source))
            self._open.pop()
        return pairs

    def _key(self, node: yaml.Node) -> Key:
        place = self._here(node)
        if not isinstance(node, yaml.ScalarNode):
            raise ConfigError(f"{place.text}: a key is a plain word or number, not a list or a mapping.")
        key: Key = self._scalar(node, place)
        return key
