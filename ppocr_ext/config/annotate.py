"""A config as YAML, each line with the place that its value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ppocr_ext.config.node import COMPUTED, Node, Place, PlaceKind, to_plain
from ppocr_ext.config.yaml_io import dump_line

_WIDEST = 72  # columns beyond which a line's comment is not aligned with the others
_STEP = "  "


class _Line(NamedTuple):
    text: str
    place: str


def annotated(root: Node) -> str:
    """YAML that reads back equal; a trailing comment names the origin of each value.

    ``# my.yml:12`` of a file, ``# -o`` of an option, ``# computed`` of what was filled in. A mapping or
    list that goes over several lines has the comments at its values.
    """
    lines = list(_mapping(root, ""))
    widths = [len(line.text) for line in lines if line.place and len(line.text) <= _WIDEST]
    column = max(widths, default=0)
    return "".join(_joined(line, column) for line in lines)


def _joined(line: _Line, column: int) -> str:
    return f"{line.text:<{column}}  # {line.place}\n" if line.place else f"{line.text}\n"


def _mapping(node: Node, indent: str) -> Iterator[_Line]:
    for key, item in node.value.items():
        if item.is_mapping and item.value:
            yield _Line(f"{indent}{_key(key)}:", "")
            yield from _mapping(item, indent + _STEP)
        elif item.is_list and any(entry.is_mapping and entry.value for entry in item.value):
            yield _Line(f"{indent}{_key(key)}:", "")
            yield from _list(item, indent + _STEP)
        else:
            yield from _value(f"{_key(key)}: ", item, indent)


def _list(node: Node, indent: str) -> Iterator[_Line]:
    for item in node.value:
        if item.is_mapping and item.value:
            first, *others = _mapping(item, indent + _STEP)
            yield _Line(f"{indent}- {first.text[len(indent) + len(_STEP) :]}", first.place)
            yield from others
        else:
            yield from _value("- ", item, indent)


def _value(head: str, node: Node, indent: str) -> Iterator[_Line]:
    yield _Line(f"{indent}{head}{dump_line(to_plain(node))}", _shown(node.place))


def _key(key: Any) -> str:
    return dump_line(key)


def _shown(place: Place) -> str:
    if place.kind is PlaceKind.COMPUTED:
        return COMPUTED.origin
    if place.is_option:
        return place.origin
    return "".join(c if c.isprintable() else "?" for c in place.text)
