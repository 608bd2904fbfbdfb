"""Read YAML safely, with line numbers and floats such as ``1e-3``; write YAML, with places if needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from ppocr_ext.config.node import COMPUTED, Key, Mark, Node, Place, PlaceKind, plain_copy
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.resources import shown_path
from ppocr_ext.limits import MAX_CONFIG_BYTES, MAX_CONFIG_VALUES, read_at_most
from ppocr_ext.messages import LOG, printable

_MAX_NUMBERS = {"tag:yaml.org,2002:int": 19, "tag:yaml.org,2002:float": 100}  # characters; 2**63 - 1 has 19
_WIDEST = 72  # columns; comments behind longer lines are not aligned
_MERGE_TAG = "tag:yaml.org,2002:merge"
_MARKS = {mark.value: mark for mark in (Mark.REMOVE, Mark.REPLACE)}
_TAG_HELP = "Only plain YAML, `!remove` and `!replace` are allowed."
# By a part of PyYAML's message: what to do.
_FIXES = {
    "undefined alias": " An anchor is known below its line, in its own file only. Fix: write the value in its place.",
    "could not find expected ':'": " Fix: `key: value`, with a colon and a space.",
    "mapping values are not allowed": " Fix: indent the line as the one above, or quote a value that has a colon.",
    "'\\t'": " Fix: indent with spaces, not with tabs.",
    "expected <block end>": " Fix: indent the line as those beside it.",
}
# In these, PyYAML notices the fault after its line, and says where the faulty part starts.
_NOTICED_LATE = ("simple key", "quoted scalar", "flow sequence", "flow mapping")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$")


class PlainLoader(yaml.SafeLoader):
    """SafeLoader without long numbers. Each ``:59`` multiplies a number by 60, and large numbers collide as keys."""

    def construct_scalar(self, node: Any) -> Any:
        """Return the text of a scalar; a number may have at most :data:`_MAX_NUMBERS` characters."""
        limit = _MAX_NUMBERS.get(node.tag, len(node.value))
        if len(node.value) > limit:
            raise ValueError(f"a number has at most {limit} characters")
        return super().construct_scalar(node)


class _Loader(PlainLoader):
    """Loader that reads ``1e-3`` as a float (in YAML 1.1 it is a string) and ``=`` as a string."""


class _Dumper(yaml.SafeDumper):
    """SafeDumper without anchors; it quotes strings that `_Loader` or SafeLoader would read as numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: str(node.value))


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.Node:
    short = not any(isinstance(item, dict) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=short)


def _represent_str(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # `\u202e`, which replaces a control character on a terminal, has this meaning only between double quotes
    style = '"' if "\n" in text or printable(text) != text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


class Replacement(list[Any]):
    """A list that is written with ``!replace``, so that it replaces the list of the base."""


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(Replacement, lambda dumper, items: dumper.represent_sequence("!replace", list(items)))
_Dumper.add_representer(str, _represent_str)


class _IndentingDumper(_Dumper):
    """Dumper that indents the items of a list below its key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def dump(plain: Any) -> str:
    """Return YAML of plain dicts, lists and scalars: keys in their order, no anchors, no Python tags."""
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def dump_with_places(root: Node) -> str:
    """Return YAML with the place of each value in a comment behind it; reading it gives the same values.

    ``# my.yml:12`` for a file, ``# -o`` for an option, ``# computed`` for a computed value. A mapping or
    list over several lines has the comments at its values.
    """
    text = yaml.dump(
        plain_copy(root), Dumper=_IndentingDumper, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    places: dict[int, Place] = {}

    def note(node: Node, written: Any) -> None:
        if isinstance(written, yaml.ScalarNode) or written.flow_style or not node.value:
            places[written.start_mark.line] = node.place
        elif node.is_mapping:
            for item, (_, value) in zip(node.value.values(), written.value, strict=True):
                note(item, value)
        else:
            for item, value in zip(node.value, written.value, strict=True):
                note(item, value)

    note(root, yaml.compose(text, Loader=_Loader))
    lines = text.splitlines()
    column = max((len(lines[n]) for n in places if len(lines[n]) <= _WIDEST), default=0)
    for number, place in places.items():
        shown = {PlaceKind.FILE: place.text, PlaceKind.COMPUTED: COMPUTED.origin}.get(
            place.kind, place.origin
        )
        comment = "".join(c if c.isprintable() else "?" for c in shown)
        lines[number] = f"{lines[number]:<{column}}  # {comment}"
    return "".join(f"{line}\n" for line in lines)


def read_file(path: Path) -> Node:
    """Return the tree of a file, which must hold one mapping.

    Raises:
        ConfigError: the file is missing, is no regular file, too large, not UTF-8, empty, not YAML or not a mapping,
            or has a tag of a Python object. The message starts with ``file:line``.
    """
    shown = shown_path(path)
    try:
        text = read_at_most(path, MAX_CONFIG_BYTES).decode("utf-8-sig")
    except OSError as error:
        hint = " Is that an option? Put -o before it." if "=" in str(path) else ""
        raise ConfigError(
            f"{path}: the config cannot be read: {error.strerror or error}.{hint}", code="unreadable_file"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{shown}:{line}: not UTF-8 at byte {error.start}. Fix: save the file as UTF-8.", code="not_utf8"
        ) from error
    if re.match(r"\s*<(?!<)", text):
        raise ConfigError(
            f"{shown}:1: a web page or other markup, not YAML. Fix: download the raw file.",
            code="invalid_yaml",
        )
    if (node := _Reader(shown).read(text)) is None:
        raise ConfigError(f"{shown}: the config is empty.", code="empty_file")
    if not node.is_mapping:
        raise ConfigError(
            f"{node.place.text}: a config must be a mapping of sections (`Global:` …).", code="not_a_mapping"
        )
    return node


def read_value(text: str, place: Place) -> Node:
    """Return the tree of the value of an option; an empty text is ``null``.

    Raises:
        ConfigError: it is not YAML; the message starts with ``place.text``.
    """
    return _Reader(place.origin, place).read(text) or Node(None, place)


def _invalid(place: Place, problem: str) -> ConfigError:
    return ConfigError(f"{place.text}: {problem}.", code="invalid_yaml")


class _Reader:
    """Reader of YAML text into a tree.

    Args:
        origin: origin of the values, such as the file.
        place: place of all values; with None, each value has its file and line.
    """

    def __init__(self, origin: str, place: Place | None = None) -> None:
        self._origin = origin
        self._place = place
        self._values = 0
        self._open: list[yaml.Node] = []

    def read(self, text: str) -> Node | None:
        """Return the tree, or None if the text is empty."""
        try:
            self._loader = _Loader(text)
            root = self._loader.get_single_node()
            return None if root is None else self._build(root)
        except yaml.MarkedYAMLError as error:
            starts_earlier = str(error.context).endswith(_NOTICED_LATE)
            marks = (error.context_mark, error.problem_mark) if starts_earlier else (error.problem_mark,)
            lines = [mark.line for mark in (*marks, error.context_mark) if mark is not None] or [0]
            line = lines[0]
            later = f" on line {max(lines) + 1}" if max(lines) > line + 1 else ""
            problem = ", ".join(part for part in (error.context, error.problem) if part)
            hint = next((fix for part, fix in _FIXES.items() if part in problem), "")
            raise ConfigError(
                f"{self._at(line)}: not valid YAML: {problem}{later}.{hint}", code="invalid_yaml"
            ) from error
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position)
            raise ConfigError(
                f"{self._at(line)}: not valid YAML: {error.reason}: {error.character!r}.", code="invalid_yaml"
            ) from error
        except RecursionError as error:
            raise ConfigError(f"{self._at(0)}: nested too deeply.", code="invalid_yaml") from error

    def _at(self, line: int) -> str:
        return self._place.text if self._place else f"{self._origin}:{line + 1}"

    def _here(self, node: yaml.Node) -> Place:
        return self._place or Place(self._origin, self._at(node.start_mark.line))

    def _build(self, node: yaml.Node) -> Node:
        place = self._here(node)
        self._count(1, place)
        if any(node is outer for outer in self._open):
            raise _invalid(place, "the value is an alias of a mapping or list that contains it")
        if (mark := _MARKS.get(node.tag, Mark.NONE)) is Mark.REMOVE:
            return Node(None, place, mark)
        if isinstance(node, yaml.ScalarNode):
            if mark is Mark.REPLACE:
                raise _invalid(
                    place, "`!replace` goes before a list or a mapping; a scalar replaces without it"
                )
            return Node(self._scalar(node, place), place)
        if mark is Mark.NONE and node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise ConfigError(
                f"{place.text}: the tag {node.tag!r} is not allowed. {_TAG_HELP}", code="bad_tag"
            )
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
        if self._values > MAX_CONFIG_VALUES:
            raise ConfigError(
                f"{place.text}: the aliases expand to more than {MAX_CONFIG_VALUES:,} values, the limit.",
                code="too_many_values",
            )

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        try:
            return self._loader.construct_object(node)
        except yaml.constructor.ConstructorError as error:
            raise ConfigError(f"{place.text}: {error.problem}. {_TAG_HELP}", code="bad_tag") from error
        except ValueError as error:
            raise ConfigError(
                f"{place.text}: {node.value!r:.100} cannot be read: {error}. Fix: quote it.", code="bad_value"
            ) from error

    def _pairs(self, node: yaml.MappingNode) -> dict[Key, yaml.Node]:
        """Return the nodes by key. First come the keys that ``<<`` adds, in PyYAML's order, then the own keys."""
        merged: dict[Key, yaml.Node] = {}
        own: dict[Key, yaml.Node] = {}
        lines: dict[Any, int] = {}
        for key_node, item in node.value:
            is_merge = key_node.tag == _MERGE_TAG
            place = self._here(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise _invalid(place, "a key must be a plain word or number, not a list or a mapping")
            key = "<<" if is_merge else self._scalar(key_node, place)
            if key in lines and not is_merge:
                LOG.warning(
                    "%s: the key %r occurs twice in one mapping, first on line %s. This one counts, as in PaddleOCR. "
                    "Fix: keep one of them.",
                    *(place.text, key, lines[key]),
                )
            lines[key] = key_node.start_mark.line + 1
            if is_merge:
                merged = {**self._merged(item), **merged}  # the first of several wins, as in a list
            else:
                own[key] = item
        return {**merged, **own}

    def _merged(self, node: yaml.Node) -> dict[Key, yaml.Node]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        pairs: dict[Key, yaml.Node] = {}
        for source in reversed(sources):  # the first of several sources wins
            place = self._here(source)
            if not isinstance(source, yaml.MappingNode):
                raise _invalid(place, "`<<` takes a mapping or a list of mappings")
            if any(source is outer for outer in self._open):
                raise _invalid(place, "`<<` names a mapping that contains it")
            self._count(len(source.value), place)
            self._open.append(source)
            pairs.update(self._pairs(source))
            self._open.pop()
        return pairs
