"""Read the fields of protobuf messages, such as ONNX files, with Python alone: nothing of the file is run."""

from __future__ import annotations

from collections.abc import Iterator

_NUMBER, _BYTES = 0, 2  # wire types of protobuf: a number of any length, and bytes after their length
_FIXED = {1: 8, 5: 4}  # the bytes of the other wire types


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field: an integer, or the bytes of a text, an inner message or a fixed number.

    Args:
        message: the bytes of one message.

    Raises:
        ValueError: it is truncated, or not protobuf.
    """
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        kind = key & 7
        size, at = (_FIXED[kind], at) if kind in _FIXED else _number(message, at)
        if kind == _NUMBER:
            yield key >> 3, size
            continue
        if kind not in (_BYTES, *_FIXED) or at + size > len(message):
            raise ValueError(f"no whole field of protobuf at byte {at:,} of {len(message):,}")
        yield key >> 3, message[at : at + size]
        at += size


def inner(message: memoryview, *path: int) -> list[memoryview]:
    """Return the messages inside ``message`` that ``path`` leads to, a field number for each level.

    Raises:
        ValueError: as :func:`fields`.
    """
    found = [message]
    for number in path:
        values = (value for each in found for key, value in fields(each) if key == number)
        found = [value for value in values if isinstance(value, memoryview)]
    return found


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number that starts at ``at``, and where the next field starts."""
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise ValueError(f"no whole field of protobuf at byte {at:,} of {len(message):,}")
