"""Read pickles without running code from them; imports no Paddle.

``.pdparams``, ``.pdopt``, ``.states`` and PaddleOCR's ``train_center.pkl`` are pickles. The reader here admits
arrays and plain containers only; anything else in the file is refused by name before it is called.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    TypeError,
)


class PlainPickleError(ValueError):
    """The file is truncated, is no pickle, or holds more than arrays and plain containers."""


def _encode_latin1(text: str, encoding: str) -> bytes:
    """Stand-in for ``_codecs.encode``, by which old pickles carry bytes."""
    return text.encode(encoding)


_NUMPY_MODULES = ("numpy", "numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric")
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_SCALAR = np.float32(0).__reduce__()[0]
_ADMITTED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "tuple"): tuple,
    ("builtins", "list"): list,
    ("builtins", "dict"): dict,
    ("builtins", "set"): set,
    ("__builtin__", "tuple"): tuple,
    ("__builtin__", "set"): set,
    ("_codecs", "encode"): _encode_latin1,
}
for _module in _NUMPY_MODULES:
    _ADMITTED[_module, "ndarray"] = np.ndarray
    _ADMITTED[_module, "dtype"] = np.dtype
    _ADMITTED[_module, "_reconstruct"] = _RECONSTRUCT
    _ADMITTED[_module, "scalar"] = _SCALAR


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}") from None


def load_plain_pickle(path: Path) -> Any:
    """Unpickle arrays and plain containers from ``path``.

    Raises:
        PlainPickleError: the file holds anything else, or is damaged; the message says what.
        OSError: the file cannot be opened.
    """
    with path.open("rb") as stream:
        try:
            return _PlainUnpickler(stream, encoding="latin1").load()
        except _DAMAGE as fault:
            raise PlainPickleError(str(fault) or type(fault).__name__) from fault
