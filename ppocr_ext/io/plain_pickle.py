"""Read pickles without running code from them; imports no Paddle.

``.pdparams``, ``.pdopt``, ``.states`` and PaddleOCR's ``train_center.pkl`` are pickles. The reader here admits
arrays and plain containers only; anything else in the file is refused by name before it is called. NumPy's own
constructors trust what a pickle tells them, to the point of reading memory that is not theirs: stand-ins take their
place, which check it first.
"""

from __future__ import annotations

import math
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

_DAMAGE = (
    pickle.UnpicklingError,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    OverflowError,
    MemoryError,  # of a size that a damaged file claims
    RecursionError,
    BufferError,
)
_PLAIN_DTYPE = re.compile(r"[biufcSU]\d{1,9}")  # truth values, numbers, strings


class PlainPickleError(ValueError):
    """The file is truncated, is no pickle, or holds more than arrays and plain containers."""


class _Name:
    """What a pickle may refer to but not call; it has no attribute that a pickle could set."""

    __slots__ = ()


class _Encode(_Name):
    """Stand-in for ``_codecs.encode``, by which old pickles carry bytes."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str = "latin1") -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"it has bytes encoded as {encoding!r}")
        return text.encode("latin1")


class _NoBytes(_Name):
    """Stand-in for ``bytes``, by which old pickles carry none."""

    __slots__ = ()

    def __call__(self) -> bytes:
        return b""


class _OrderedDict(_Name):
    """Stand-in for ``OrderedDict``, whose instances have attributes that a pickle could set."""

    __slots__ = ()

    def __call__(self, *items: Any) -> dict[Any, Any]:
        return dict(*items)


class _Dtype:
    """Stand-in for ``numpy.dtype``: a plain kind of number or string, and its byte order."""

    __slots__ = ("dtype",)
    __hash__ = None  # type: ignore[assignment]  # no key: it is replaced in the end

    def __init__(self, name: str, *_: Any) -> None:
        if not isinstance(name, str) or not _PLAIN_DTYPE.fullmatch(name):
            raise pickle.UnpicklingError(f"it has an array of {name!r}, which is no plain number or string")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"it has an array of byte order {order!r}")
        self.dtype = self.dtype.newbyteorder(order)


class _MakeDtype(_Name):
    __slots__ = ()

    def __call__(self, name: str, *others: Any) -> _Dtype:
        return _Dtype(name, *others)


class _Array:
    """Stand-in for an array that a pickle fills once it has made it."""

    __slots__ = ("value",)
    __hash__ = None  # type: ignore[assignment]

    value: np.ndarray | None

    def __init__(self) -> None:
        self.value = None

    def __setstate__(self, state: Any) -> None:
        *version, shape, dtype, fortran, content = state
        if self.value is not None or version not in ([], [0], [1]):
            raise pickle.UnpicklingError("it has an array of an unknown kind")
        self.value = _checked_array(shape, dtype, bool(fortran), content)


class _Reconstruct(_Name):
    """Stand-in for NumPy's ``_reconstruct``."""

    __slots__ = ()

    def __call__(self, kind: Any, *_: Any) -> _Array:
        if kind is not _NDARRAY:
            raise pickle.UnpicklingError("it has an array of an unknown kind")
        return _Array()


class _FromBuffer(_Name):
    """Stand-in for NumPy's ``_frombuffer``, by which pickles of protocol 5 carry arrays."""

    __slots__ = ()

    def __call__(self, content: Any, dtype: Any, shape: Any, order: Any) -> _Array:
        array = _Array()
        array.value = _checked_array(shape, dtype, order == "F", bytes(content))
        return array


class _Scalar(_Name):
    """Stand-in for NumPy's ``scalar``."""

    __slots__ = ()

    def __call__(self, dtype: Any, content: Any = b"") -> Any:
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


_NUMPY_MODULES = (
    "numpy",
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core.numeric",
    "numpy._core.numeric",
)
_NDARRAY = _Name()
_ADMITTED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _OrderedDict(),
    ("builtins", "tuple"): tuple,
    ("builtins", "list"): list,
    ("builtins", "dict"): dict,
    ("builtins", "set"): set,
    ("__builtin__", "bytes"): _NoBytes(),
    ("__builtin__", "tuple"): tuple,
    ("__builtin__", "set"): set,
    ("_codecs", "encode"): _Encode(),
}
for _module in _NUMPY_MODULES:
    _ADMITTED[_module, "ndarray"] = _NDARRAY
    _ADMITTED[_module, "dtype"] = _MakeDtype()
    _ADMITTED[_module, "_reconstruct"] = _Reconstruct()
    _ADMITTED[_module, "_frombuffer"] = _FromBuffer()
    _ADMITTED[_module, "scalar"] = _Scalar()


# Python's own: that in C fills a table as long as an index in the file says, gigabytes for one flipped bit
class _PlainUnpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    read: Callable[[int], bytes]  # of the base, while it loads
    append: Callable[[Any], None]

    def _load_bytearray(self) -> None:
        """As the base does, but without filling memory of a size that a damaged file claims."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    dispatch[pickle.BYTEARRAY8[0]] = _load_bytearray

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}") from None


def _finished(value: Any, seen: dict[int, tuple[Any, Any]]) -> Any:
    """``value`` with arrays in the place of their stand-ins; lists and dicts are changed in place."""
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
        # both are kept, so that no other object gets the number of the first
        seen[id(value)] = value, tuple(_finished(item, seen) for item in value)
    return seen[id(value)][1]


def load_plain_pickle(path: Path) -> Any:
    """Unpickle arrays and plain containers from ``path``; an ``OrderedDict`` becomes a ``dict``.

    Raises:
        PlainPickleError: the file holds anything else, or is damaged; the message says what.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as stream:
        try:
            return _finished(_PlainUnpickler(stream, encoding="latin1").load(), {})
        except _DAMAGE as fault:
            raise PlainPickleError(str(fault) or type(fault).__name__) from fault
