"""Read the fields of protobuf messages, such as ONNX files, with Python alone: nothing of the file is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

MAX_FIELDS = 200_000  # of a file, since empty ones take hundreds of bytes of memory; PP-OCRv6 small has 6,493
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
        elif kind not in (_BYTES, *_FIXED) or at + size > len(message):
            raise ValueError(f"no whole field of protobuf at byte {at:,} of {len(message):,}")
        else:
            yield key >> 3, message[at : at + size]
            at += size


def walk(
    message: memoryview, kind: str, inner: Mapping[tuple[str, int], str]
) -> list[tuple[tuple[str, int], int | memoryview]]:
    """Return the kind of message, number and value of each field of a message and of those inside it.

    Args:
        message: the bytes of one message.
        kind: its kind.
        inner: the kinds of the messages inside, by the kind of the outer one and the number of the field.

    Raises:
        ValueError: as :func:`fields`, or there are more than :data:`MAX_FIELDS`.
    """
    found = []
    waiting = [(kind, message)]
    for outer, each in waiting:  # it grows
        for number, value in fields(each):
            found.append(((outer, number), value))
            if len(found) > MAX_FIELDS:
                raise ValueError(f"it has more than {MAX_FIELDS:,} fields")
            if isinstance(value, memoryview) and (outer, number) in inner:
                waiting.append((inner[outer, number], value))
    return found


def _number(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number that starts at ``at``, and where the next field starts."""
    value = 0
    for place, byte in enumerate(message[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise ValueError(f"no whole field of protobuf at byte {at:,} of {len(message):,}")
