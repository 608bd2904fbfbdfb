"""The folder of compiled networks: found by their digest, complete or missing, bounded in size."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ppocr_ext.checkpoint.weights import code_digest, state_digest
from ppocr_ext.io.atomic import require_no_link
from ppocr_ext.io.resources import cache_folder
from ppocr_ext.modeling.head_request import HeadRequest

FORMAT = 1  # of the graphs
LIMIT = 2 << 30  # bytes of all compiled networks together
_PART = ".part-"  # begin of the names of folders that are written or removed
_STALE = 24 * 3600  # seconds, after which the folder of a killed process is removed


def graph_key(network: nn.Layer, request: HeadRequest, image_shape: tuple[int | None, ...]) -> str:
    """Return the digest of all that a graph depends on: weights, buffers, layers with options and code, versions."""
    layers = [
        (name, type(layer), {key: value for key, value in vars(layer).items() if _is_option(key, value)})
        for name, layer in network.named_sublayers(include_self=True)
    ]
    asked = {**vars(request), "branches": sorted(request.branches)}
    parts = [
        state_digest(network),
        dict(network.named_buffers()),  # also those that are not persistent, which no state has
        code_digest(network),
        layers,
        asked,
        image_shape,
        paddle.__version__,
        FORMAT,
    ]
    text = json.dumps(parts, sort_keys=True, skipkeys=True, default=_described)
    return hashlib.sha256(text.encode()).hexdigest()


def _is_option(name: str, value: Any) -> bool:
    """Return False for what a layer is made of, its mode, and the name that Paddle gives it."""
    return name not in ("training", "_full_name") and not isinstance(value, OrderedDict)


def _described(value: Any) -> Any:
    """Return what tells a value from others: of arrays a digest, of functions and objects the qualified name."""
    if isinstance(value, paddle.Tensor | np.ndarray | np.generic):
        return [str(value.dtype), list(value.shape), hashlib.sha256(np.asarray(value).tobytes()).hexdigest()]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _root() -> Path:
    return require_no_link(cache_folder("engines"))  # its oldest folders are removed


def is_kept(key: str) -> bool:
    """Return True if the graph ``key`` is there, and is of this user."""
    folder = _root() / key
    return folder.is_dir() and folder.lstat().st_uid == getattr(os, "getuid", int)()


@contextmanager
def cached_folder(key: str, write: Callable[[Path], None], *, private: bool = False) -> Iterator[Path]:
    """Yield the folder of the graph ``key`` in ``$PPOCR_EXT_CACHE/engines``; call ``write`` with a folder if it is new.

    Processes that need the same one at the same time each write it; the first one stays. The oldest are removed above
    ``LIMIT`` afterwards. Without a folder that can be written to, the graph exists inside this context only; so does a
    ``private`` one, which is written beside a bad graph that cannot be removed. A graph of another user is not opened.
    """
    root = _root()
    folder = root / key
    if is_kept(key) and not private:
        with suppress(OSError):
            os.utime(folder)
        yield folder
        with suppress(OSError):  # the folders are of another user
            _remove_oldest(root, folder)  # an ONNX file may have been added
        return
    part = _new_folder(None if private else root)
    try:
        write(part)
        if part.parent == root:
            with suppress(OSError):  # another process has written it meanwhile
                part.replace(folder)
        yield part if part.is_dir() else folder
        if part.parent == root:
            _remove_oldest(root, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _new_folder(root: Path | None) -> Path:
    """Return a new folder in ``root``; where that cannot be written to, or is None, in that of the system."""
    if root is not None:
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=_PART, dir=root))
    return Path(tempfile.mkdtemp())


def discard(key: str) -> bool:
    """Remove the graph ``key`` if it is there; return False if it cannot be removed."""
    folder = _root() / key
    _remove(folder)
    return not folder.is_dir()


def _remove_oldest(root: Path, kept: Path) -> None:
    """Remove the folders that were not used for longest, until the rest has at most ``LIMIT`` bytes."""
    found, total = [], 0
    for folder in root.iterdir():
        with suppress(OSError):  # another process removes it
            used, size = folder.stat().st_mtime, sum(file.stat().st_size for file in folder.iterdir())
            if folder.name.startswith(_PART):
                if used < time.time() - _STALE:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            total += size
            found.append((used, size, folder))
    for _, size, folder in sorted(found):
        if total > LIMIT and folder != kept:
            _remove(folder)
            total -= size


def _remove(folder: Path) -> None:
    """Remove a folder at once for other processes, which would find half of it; leave another user's."""
    if not folder.is_dir():
        return
    with suppress(OSError):
        gone = Path(tempfile.mkdtemp(prefix=_PART, dir=folder.parent))
        try:
            folder.replace(gone)  # an empty folder can be replaced
        finally:
            shutil.rmtree(gone, ignore_errors=True)
