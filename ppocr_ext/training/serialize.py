"""Read checkpoint files without running code from them; the bytes that a checkpoint is written as.

``.pdparams``, ``.pdopt`` and ``.states`` are pickles. The reader here admits arrays and plain
containers only; anything else in the file is refused by name before it is called.
"""

from __future__ import annotations

import io
import os
import pickle
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.errors import WeightsError

NAME_TABLE = "StructuredToParameterName@@"  # what paddle.save adds beside the tensors


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


def read_plain_pickle(path: Path) -> Any:
    """Unpickle arrays and plain containers from ``path``.

    Raises:
        WeightsError: the file is missing, truncated, or holds anything else.
    """
    if not path.is_file():
        raise WeightsError(
            f"There is no file {path}. Give the path of a checkpoint, with or without its ending."
        )
    try:
        with path.open("rb") as stream:
            return _PlainUnpickler(stream, encoding="latin1").load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        TypeError,
    ) as fault:
        raise WeightsError(
            f"{path} ({path.stat().st_size} bytes) is no checkpoint that can be read: {fault}. It is truncated, "
            f"or not what paddle.save writes. Use another checkpoint of the run."
        ) from fault


def read_state(path: Path) -> dict[str, np.ndarray]:
    """Weights by name, as ``paddle.save(layer.state_dict(), path)`` left them.

    Tensors that Paddle wrote as ``(name, array)`` are unwrapped; its table of names is left out.

    Raises:
        WeightsError: the file cannot be read, or holds something else than arrays by name.
    """
    content = read_plain_pickle(path)
    if not isinstance(content, dict):
        raise WeightsError(
            f"{path} holds a {type(content).__name__}, not weights by name. Give what "
            f"`paddle.save(model.state_dict(), path)` wrote."
        )
    state: dict[str, np.ndarray] = {}
    for name, value in content.items():
        if name == NAME_TABLE:
            continue
        if isinstance(value, tuple) and len(value) == 2:
            value = value[1]
        if not isinstance(value, np.ndarray):
            raise WeightsError(f"{path}: the entry {name!r} is a {type(value).__name__}, not an array.")
        state[name] = value
    if not state:
        raise WeightsError(f"{path} holds no weights.")
    return state


def write_temporary(path: Path, content: bytes) -> Path:
    """Write and sync a temporary file in the folder of ``path``; return where it lies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def tensors_to_bytes(state: Any) -> bytes:
    """What ``paddle.save(state, file)`` writes."""
    import paddle

    buffer = io.BytesIO()
    paddle.save(state, buffer)
    return buffer.getvalue()
