"""Read pickles and ``.npz`` files without running their code, within a limit of memory; imports no Paddle.

``.pdparams``, ``.pdopt``, ``.states`` and PaddleOCR's ``train_center.pkl`` are pickles. The reader here allows
arrays and plain containers only; any other name in the file is refused before it is called. NumPy's constructors
trust the file, and may even read memory outside of it. Our functions, which check everything first, replace them.
"""

from __future__ import annotations

import math
import os
import pickle
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from ppocr_ext.limits import most_memory, open_regular

_PER_OPCODE = 224  # bytes: the most that an opcode takes without content, which is an empty set on the stack
_PER_ENTRY = 100  # bytes of an entry of a copied container
# which entries of the stack, since the last mark, are keys of a dict or entries of a set
_KEYS = dict.fromkeys(pickle.ADDITEMS + pickle.FROZENSET, slice(None))
_KEYS |= dict.fromkeys(pickle.SETITEMS + pickle.DICT, slice(None, None, 2)) | {
    pickle.SETITEM[0]: slice(-2, -1)
}
_DAMAGE = (
    pickle.UnpicklingError,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    OverflowError,
    MemoryError,  # for a size in a damaged file
    RecursionError,
    BufferError,
)
_PLAIN_DTYPE = re.compile(r"[biufcSU]\d{1,9}")  # bools, numbers, strings


class PlainPickleError(ValueError):
    """The file is truncated, is not a pickle, or holds more than arrays and plain containers."""


class _Dtype:
    """Stand-in for ``numpy.dtype``: a plain kind of number or string, and its byte order."""

    __slots__ = ("dtype",)
    __hash__ = None  # type: ignore[assignment]  # it must not be a key, since it is replaced at the end

    def __init__(self, name: str, *_: Any) -> None:
        if not isinstance(name, str) or not _PLAIN_DTYPE.fullmatch(name):
            raise pickle.UnpicklingError(
                f"it has an array of {name!r}, which is not a plain number or string"
            )
        self.dtype = np.dtype(name)

    def set_state(self, state: Any) -> None:
        """Set the byte order; other entries of the state are ignored, since NumPy would trust them."""
        order = state[1]
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"it has an array of byte order {order!r}")
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stand-in for an array that a pickle first creates and then fills."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: np.ndarray | None = None) -> None:
        self.value = value

    def set_state(self, state: Any) -> None:
        """Fill the array with checked content."""
        *version, shape, dtype, fortran, content = state
        if self.value is not None or version not in ([], [0], [1]):
            raise pickle.UnpicklingError("it has an array of an unknown kind")
        self.value = _checked_array(shape, dtype, bool(fortran), content)


def _make_dtype(name: str, *others: Any) -> _Dtype:
    return _Dtype(name, *others)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Replace ``_codecs.encode``, with which old pickles write bytes."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"it has bytes encoded as {encoding!r}")
    return text.encode("latin1")


def _reconstruct(kind: Any, *_: Any) -> _Array:
    """Replace NumPy's ``_reconstruct``."""
    if kind is not _NDARRAY:
        raise pickle.UnpicklingError("it has an array of an unknown kind")
    return _Array()


def _from_buffer(content: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    """Replace NumPy's ``_frombuffer``, with which pickles of protocol 5 write arrays."""
    return _Array(_checked_array(shape, dtype, order == "F", bytes(content)))


def _scalar(dtype: Any, content: Any = b"") -> Any:
    """Replace NumPy's ``scalar``."""
    if isinstance(dtype, _Dtype) and not dtype.dtype.itemsize:
        return dtype.dtype.type()
    return _checked_array((), dtype, False, content)[()]


def _checked_array(shape: Any, dtype: Any, fortran: bool, content: Any) -> np.ndarray:
    if isinstance(content, str):  # bytes of Python 2
        content = content.encode("latin1")
    plain = (
        isinstance(dtype, _Dtype)
        and isinstance(content, bytes)
        and isinstance(shape, tuple)
        and all(type(size) is int and size >= 0 for size in shape)
    )
    if not plain:
        raise pickle.UnpicklingError("it has an array that is not of plain numbers or strings")
    if not dtype.dtype.itemsize or math.prod(shape) * dtype.dtype.itemsize != len(content):
        raise pickle.UnpicklingError(
            f"it has an array of shape {shape} and {len(content)} bytes, which do not fit"
        )
    array: Any = np.empty(0, dtype.dtype)
    array.__setstate__((1, shape, dtype.dtype, fortran, content))  # unlike frombuffer, without a copy
    return array


def _check_keys(keys: Iterable[Any]) -> None:
    """Refuse keys of a dict, or entries of a set, of types whose hashes an attacker can make equal.

    With equal hashes, the time grows with the square of their number; with tuples of tuples even more.
    """
    for key in keys:
        is_small = isinstance(key, int) and key.bit_length() <= 64
        if not is_small and not isinstance(key, str | bytes | float | np.integer | np.floating | None):
            raise pickle.UnpicklingError("it has a key that is neither text nor a number of at most 64 bits")


def _dict(pairs: Any = ()) -> dict[Any, Any]:
    _check_keys(key for key, _ in pairs)
    return dict(pairs)


def _set(entries: Any = ()) -> set[Any]:
    _check_keys(entries)
    return set(entries)


_NDARRAY = object()  # a pickle may name ``numpy.ndarray`` but not call it
_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _dict,
    ("builtins", "tuple"): tuple,
    ("builtins", "list"): list,
    ("builtins", "dict"): _dict,
    ("builtins", "set"): _set,
    ("__builtin__", "bytes"): lambda: b"",  # old pickles call it for empty bytes
    ("__builtin__", "tuple"): tuple,
    ("__builtin__", "set"): _set,
    ("_codecs", "encode"): _encode,
}
for _module in ("", ".core.multiarray", "._core.multiarray", ".core.numeric", "._core.numeric"):
    for _name, _replacement in (
        ("ndarray", _NDARRAY),
        ("dtype", _make_dtype),
        ("_reconstruct", _reconstruct),
        ("_frombuffer", _from_buffer),
        ("scalar", _scalar),
    ):
        _ALLOWED[f"numpy{_module}", _name] = _replacement


def _copied(arguments: Any) -> int:
    """Return the bytes of what a call copies: the content of its arguments."""
    sized = [
        each for each in arguments if isinstance(each, bytes | bytearray | str | list | tuple | dict | set)
    ]
    return sum(len(each) * (1 if isinstance(each, bytes | bytearray | str) else _PER_ENTRY) for each in sized)


def _counted(step: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    def load(unpickler: _PlainUnpickler) -> None:
        unpickler.spend(_PER_OPCODE)
        _check_keys(unpickler.stack[keys])
        step(unpickler)

    return load


_BASE: Any = pickle._Unpickler


# Python's unpickler, since the one in C makes a table as long as an index in the file: gigabytes for a flipped bit
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    read: Callable[[int], bytes]  # attribute of the base class while it loads
    append: Callable[[Any], None]
    stack: list[Any]

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        super().__init__(stream, encoding="latin1")
        self._limit = limit
        self._left = limit

    def spend(self, size: int) -> None:
        """Count memory before it is taken, since a file of kilobytes may ask for gigabytes."""
        self._left -= size
        if self._left < 0:
            raise pickle.UnpicklingError(
                f"it takes more memory than the limit for its size, {self._limit:,} bytes"
            )

    def _load_bytearray(self) -> None:
        """Read like the base, but never take more memory than the file has bytes."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    def _load_build(self) -> None:
        """Set the state of a stand-in; the base would set attributes of any object."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Array | _Dtype):
            raise pickle.UnpicklingError("it sets the state of an object that is not an array")
        self.spend(_copied(state))
        self.stack[-1].set_state(state)

    def _load_reduce(self) -> None:
        """Call like the base, but within the limit, since a file may copy the same content many times."""
        self.spend(_copied(self.stack[-1]))
        _BASE.load_reduce(self)

    def _load_newobj(self) -> None:
        self.spend(_copied(self.stack[-1]))
        _BASE.load_newobj(self)

    def _instantiate(self, kind: Any, arguments: Any) -> None:
        self.spend(_copied(arguments))
        _BASE._instantiate(self, kind, arguments)

    dispatch[pickle.BYTEARRAY8[0]] = _load_bytearray
    dispatch[pickle.BUILD[0]] = _load_build
    dispatch[pickle.REDUCE[0]] = _load_reduce
    dispatch[pickle.NEWOBJ[0]] = _load_newobj
    dispatch.update({code: _counted(step, _KEYS.get(code, slice(0))) for code, step in dispatch.items()})

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it calls {module}.{name}") from None


def _finished(value: Any, seen: dict[int, tuple[Any, Any]]) -> Any:
    """Return ``value`` with arrays instead of their stand-ins; lists and dicts are changed in place."""
    if isinstance(value, _Array):
        if value.value is None:
            raise pickle.UnpicklingError("it has an array without content")
        return value.value
    if isinstance(value, _Dtype):
        return value.dtype
    if not isinstance(value, dict | list | tuple):
        return value
    if id(value) in seen:
        return seen[id(value)][1]
    seen[id(value)] = value, value
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _finished(item, seen)
    elif isinstance(value, list):
        value[:] = [_finished(item, seen) for item in value]
    else:
        # the first is kept too, so that no other object gets its id
        seen[id(value)] = value, tuple(_finished(item, seen) for item in value)
    return seen[id(value)][1]


def load_plain_pickle(path: Path) -> Any:
    """Return the arrays and plain containers in ``path``; an ``OrderedDict`` becomes a ``dict``.

    Raises:
        PlainPickleError: the file holds anything else, is damaged, or would take more memory than
            :func:`ppocr_ext.limits.most_memory` of its size; the message says what.
        OSError: the file cannot be opened, or is not a regular file.
    """
    with open_regular(path) as stream:
        limit = most_memory(os.fstat(stream.fileno()).st_size)
        try:
            return _finished(_PlainUnpickler(stream, limit).load(), {})
        except _DAMAGE as error:
            raise PlainPickleError(str(error) or type(error).__name__) from error


# errors of NumPy for a damaged file, whose headers it trusts
_DAMAGE_OF_NPZ = (
    *_DAMAGE,
    OSError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def load_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Return those arrays of an ``.npz`` that ``names`` lists and the file has, or all if ``names`` is None.

    Python objects are not read.

    Raises:
        ValueError: the file is missing or damaged, holds Python objects, or would take more memory than
            :func:`ppocr_ext.limits.most_memory` of its size, since it is compressed too much.
    """
    try:
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as content:
            limit = most_memory(os.fstat(stream.fileno()).st_size)
            if sum(member.file_size for member in content.zip.infolist()) > limit:
                raise ValueError(f"it takes more memory than the limit for its size, {limit:,} bytes")
            return {name: content[name] for name in (content if names is None else names) if name in content}
    except _DAMAGE_OF_NPZ as error:
        raise ValueError(str(error)) from error
