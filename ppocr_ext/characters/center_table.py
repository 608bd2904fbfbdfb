"""One feature center for each character, as a file: ``.npz`` of ours, ``.pkl`` of PaddleOCR. Imports no Paddle."""

from __future__ import annotations

import json
import pickle
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.io.plain_pickle import PlainPickleError, load_plain_pickle

_DAMAGE = (  # what NumPy raises of a damaged file, whose headers it takes at their word
    ValueError,
    OSError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    SyntaxError,
    tokenize.TokenError,
    MemoryError,
    OverflowError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_ARRAYS = ("class_ids", "characters", "centers", "counts", "spread", "meta")
_MAKE = "`ppocr-ext export-center` writes such a file."


@dataclass(frozen=True)
class CenterTable:
    """Centers of K classes, in ascending order of class id.

    Attributes:
        class_ids: int64 [K], CTC class ids; 0 is the blank.
        characters: str [K], the symbols of these classes; empty where a ``.pkl`` does not say.
        centers: float32 [K, D], the mean feature of each class.
        counts: int64 [K], frames that the mean was taken of; 0 where a ``.pkl`` does not say.
        spread: float64 [K], mean squared distance of these frames to their center.
        meta: where they come from: ``charset_digest``, ``classes``, model, split, frames, versions.
    """

    class_ids: np.ndarray
    characters: tuple[str, ...]
    centers: np.ndarray
    counts: np.ndarray
    spread: np.ndarray
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def feat_dim(self) -> int:
        """D, features of a frame."""
        return int(self.centers.shape[1])

    def save(self, path: Path) -> None:
        """Write the ``.npz``, atomically."""
        with atomic_writer(path) as stream:
            np.savez(
                stream,
                class_ids=self.class_ids,
                characters=np.array(self.characters, dtype=np.str_),
                centers=self.centers,
                counts=self.counts,
                spread=self.spread,
                meta=np.array(json.dumps(self.meta, ensure_ascii=False)),
            )

    def save_pickle(self, path: Path) -> None:
        """Write ``{class id: float32 [D]}``, which PaddleOCR's ``CenterLoss`` loads, atomically."""
        centers = {int(c): row.copy() for c, row in zip(self.class_ids, self.centers, strict=True)}
        with atomic_writer(path) as stream:
            pickle.dump(centers, stream)

    def check_fits(self, charset: Charset, where: str) -> None:
        """Refuse centers of another dictionary.

        Raises:
            DataError: they were made with another dictionary, or have a class that this one lacks.
        """
        made_with = self.meta.get("charset_digest")
        if made_with is not None and made_with != charset.digest:
            raise DataError(
                f"{where} was made with another dictionary ({self.meta.get('charset', 'unnamed')}, "
                f"{self.meta.get('classes')} classes) than {charset.name} ({charset.ctc_classes} classes). Export "
                f"the centers again with this dictionary."
            )
        highest = int(self.class_ids[-1]) if len(self.class_ids) else 0
        if highest >= charset.ctc_classes:
            raise DataError(
                f"{where} has a center of class {highest}, but {charset.name} gives {charset.ctc_classes} classes. "
                f"Export the centers again with this dictionary."
            )


def read_centers(path: str | Path) -> CenterTable:
    """Read centers: our ``.npz``, or PaddleOCR's ``train_center.pkl``; no code of the file is run.

    Raises:
        DataError: the file is missing, damaged, or holds something else.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no file of centers {path}. {_MAKE}")
    with path.open("rb") as stream:
        is_zip = stream.read(2) == b"PK"
    return _read_npz(path) if is_zip else _read_pickle(path)


def _read_npz(path: Path) -> CenterTable:
    try:
        with np.load(path, allow_pickle=False) as content:
            lacking = [name for name in _ARRAYS if name not in content]
            if lacking:
                raise DataError(f"{path} lacks {', '.join(lacking)}: it is no file of centers. {_MAKE}")
            arrays = {name: content[name] for name in _ARRAYS}
        meta = json.loads(str(arrays["meta"]))
        characters = tuple(str(c) for c in arrays["characters"].ravel())
    except _DAMAGE as fault:
        raise DataError(
            f"{path} cannot be read as centers ({fault}). It is truncated, damaged, or holds Python objects, which "
            f"are not read. {_MAKE}"
        ) from fault
    if not isinstance(meta, dict):
        raise DataError(f"{path}: meta is {type(meta).__name__}, no JSON object. {_MAKE}")
    _check_arrays(arrays, path)
    return CenterTable(
        arrays["class_ids"].astype(np.int64),
        characters,
        arrays["centers"].astype(np.float32),
        arrays["counts"].astype(np.int64),
        arrays["spread"].astype(np.float64),
        meta,
    )


def _read_pickle(path: Path) -> CenterTable:
    try:
        content = load_plain_pickle(path)
    except PlainPickleError as fault:
        raise DataError(
            f"{path} cannot be read as centers: {fault}. Only a pickle of arrays by class id is read, and no code "
            f"in it is run. {_MAKE}"
        ) from fault
    good = isinstance(content, dict) and content and all(map(_is_class_id, content))
    if not good or not all(map(_is_row, content.values())):
        raise DataError(f"{path} holds no centers by class id, as PaddleOCR's train_center.pkl does. {_MAKE}")
    ids = sorted(content, key=int)
    if len({len(content[key]) for key in ids}) != 1:
        raise DataError(f"{path}: its centers have different numbers of features. {_MAKE}")
    rows = np.stack([np.asarray(content[key]) for key in ids])
    unknown = np.zeros(len(ids))
    arrays = {"class_ids": np.array([int(key) for key in ids], np.int64), "characters": np.array([], np.str_)}
    _check_arrays({**arrays, "centers": rows, "counts": unknown, "spread": unknown}, path)
    return CenterTable(arrays["class_ids"], (), rows.astype(np.float32), unknown.astype(np.int64), unknown)


def _is_class_id(key: Any) -> bool:
    is_whole = isinstance(key, int | np.integer) and not isinstance(key, bool)
    return is_whole and 0 <= int(key) <= np.iinfo(np.int32).max


def _is_row(value: Any) -> bool:
    numbers = isinstance(value, np.ndarray) or (
        isinstance(value, list | tuple) and all(map(_is_number, value))
    )
    return numbers and np.ndim(value) == 1 and np.asarray(value).dtype.kind in "iuf"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating)


def _check_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    ids, centers = arrays["class_ids"], arrays["centers"]
    k = len(ids) if ids.ndim == 1 else -1
    good = (
        k >= 0
        and ids.dtype.kind in "iu"
        and centers.ndim == 2
        and centers.dtype.kind in "iuf"
        and len(centers) == k
        and all(
            arrays[name].shape == (k,) and arrays[name].dtype.kind in "iuf" for name in ("counts", "spread")
        )
        and arrays["characters"].shape in ((0,), (k,))
        and (k == 0 or (bool((np.diff(ids.astype(np.int64)) > 0).all()) and int(ids[0]) >= 0))
    )
    if not good:
        raise DataError(f"{path}: the arrays of centers do not fit each other. {_MAKE}")
    if not centers.size:
        raise DataError(f"{path} holds no centers. {_MAKE}")
    with np.errstate(over="ignore"):
        finite = bool(np.isfinite(centers.astype(np.float32)).all())
    if not finite:
        raise DataError(
            f"{path}: a center is not finite. Export the centers again from a model that has not diverged."
        )
