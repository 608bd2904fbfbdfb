"""Read the fields of protobuf messages, such as ONNX files, with Python alone: nothing of the file is run."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types of protobuf
_LONGEST = 63  # bits before the last byte of a varint


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field: an integer, or the bytes of a text, an inner message or a fixed number.

    Args:
        message: the bytes of one message.

    Raises:
        ValueError: it is truncated, or not protobuf.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind not in (_EIGHT_BYTES, _BYTES, _FOUR_BYTES):
            raise ValueError(f"byte {at} starts no field of protobuf")
        size, at = _varint(message, at) if kind == _BYTES else (8 if kind == _EIGHT_BYTES else 4, at)
        if at + size > len(message):
            raise ValueError(f"it is truncated (found {len(message):,} bytes, expected {at + size:,})")
        yield key >> 3, message[at : at + size]
        at += size


def inner(message: memoryview, number: int) -> list[memoryview]:
    """Return the inner messages of ``message`` that have this field number.

    Raises:
        ValueError: as :func:`fields`.
    """
    return [value for key, value in fields(message) if key == number and isinstance(value, memoryview)]


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the number that starts at ``at``, and where the next one starts."""
    value = 0
    for shift in range(0, _LONGEST + 1, 7):
        if at >= len(message):
            raise ValueError("it is truncated")
        value |= (message[at] & 127) << shift
        at += 1
        if message[at - 1] < 128:
            return value, at
    raise ValueError(f"byte {at} is in a number that never ends")
