"""Read checkpoint files without running code from them, and write them.

``.pdparams``, ``.pdopt`` and ``.states`` are pickles, read by :mod:`ppocr_ext.io.plain_pickle`.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.errors import WeightsError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.io.plain_pickle import PlainPickleError, load_plain_pickle

NAME_TABLE = "StructuredToParameterName@@"  # what paddle.save adds to the tensors

_DICTS = (
    "best_model_dict",
    "parameter_names",
    "frozen",
    "scaler",
    "loss",
    "hooks",
    "raw_weights",
    "views",
    "engines",
)


def read_plain_pickle(path: Path) -> Any:
    """Unpickle arrays and plain containers from ``path``.

    Raises:
        WeightsError: the file is missing, truncated, or holds anything else.
    """
    if not path.is_file():
        raise WeightsError(
            f"There is no file {path}. Fix: give the path of a checkpoint, with or without its ending.",
            code="missing_file",
        )
    try:
        return load_plain_pickle(path)
    except PlainPickleError as error:
        raise WeightsError(
            f"{path} ({path.stat().st_size} bytes) cannot be read as a checkpoint: {error}. It is truncated, or was "
            f"not written by paddle.save. Fix: use another checkpoint of the run.",
            code="damaged_file",
        ) from error


def read_state(path: Path) -> dict[str, np.ndarray]:
    """Return weights by name, as ``paddle.save(layer.state_dict(), path)`` wrote them.

    Tensors that Paddle wrote as ``(name, array)`` are unwrapped; its table of names is dropped.

    Raises:
        WeightsError: the file cannot be read, or holds something else than arrays by name.
    """
    content = read_plain_pickle(path)
    if not isinstance(content, dict):
        raise WeightsError(
            f"{path} holds a {type(content).__name__}, not weights by name. Fix: give a file written by "
            f"`paddle.save(model.state_dict(), path)`.",
            code="bad_content",
        )
    state: dict[str, np.ndarray] = {}
    for name, value in content.items():
        if name == NAME_TABLE:
            continue
        if isinstance(value, tuple) and len(value) == 2:
            value = value[1]
        if not isinstance(value, np.ndarray) or not isinstance(name, str):
            raise WeightsError(
                f"{path}: the entry {name!r} is a {type(value).__name__}, not an array with a name.",
                code="bad_content",
            )
        state[name] = value
    if not state:
        raise WeightsError(f"{path} holds no weights.", code="bad_content")
    return state


def is_train_state(content: Any) -> bool:
    """Return True if a ``.states`` file holds a dict, with dicts and no arrays where a run writes them."""
    return isinstance(content, dict) and all(
        type(value) is dict if name in _DICTS else not isinstance(value, np.ndarray)
        for name, value in content.items()
    )


def write_temporary(path: Path, content: bytes) -> Path:
    """Write and sync a temporary file in the folder of ``path``; return its path."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with atomic_writer(temporary) as stream:
        stream.write(content)
    return temporary


def write_all_temporary(contents: Mapping[Path, bytes]) -> dict[Path, Path]:
    """Write a temporary file for each path, or none if one cannot be written; return them by path."""
    written: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            written[path] = write_temporary(path, content)
    except BaseException:
        for file in written.values():
            file.unlink(missing_ok=True)
        raise
    return written


def tensors_to_bytes(state: Any) -> bytes:
    """Return the bytes that ``paddle.save(state, file)`` writes."""
    import paddle

    buffer = io.BytesIO()
    paddle.save(state, buffer)
    return buffer.getvalue()
