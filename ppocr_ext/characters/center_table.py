"""Read and write files of character centers: our ``.npz`` and PaddleOCR's ``.pkl``. Imports no Paddle."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.io.plain_pickle import PlainPickleError, load_arrays, load_plain_pickle
from ppocr_ext.limits import json_object, open_regular

_ARRAYS = ("class_ids", "characters", "centers", "counts", "variance", "meta")
_HIGHEST = np.iinfo(np.int32).max  # class id
_FIX = "Fix: write the centers with `ppocr-ext export-center`."


@dataclass(frozen=True)
class CenterTable:
    """Centers of K classes, in ascending order of class id.

    Attributes:
        class_ids: int64 [K], CTC class ids; 0 is the blank.
        characters: the symbols of these classes; empty if read from a ``.pkl``.
        centers: float32 [K, D], the mean feature of each class.
        counts: int64 [K], frames of each class; 0 if read from a ``.pkl``.
        variance: float64 [K], mean squared distance of these frames to their center.
        meta: their origin: ``charset_digest``, ``classes``, model, split, frames, versions.
    """

    class_ids: np.ndarray
    characters: tuple[str, ...]
    centers: np.ndarray
    counts: np.ndarray
    variance: np.ndarray
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def feat_dim(self) -> int:
        """Return D, the number of features of a frame."""
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
                variance=self.variance,
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
            DataError: they belong to another dictionary, or have a class that this dictionary lacks.
        """
        dictionary = f"{charset.name} ({charset.ctc_classes} classes)"
        made_with = self.meta.get("charset_digest")
        highest = int(self.class_ids[-1]) if len(self.class_ids) else 0
        if made_with not in (None, charset.digest):
            other = f"{self.meta.get('charset', 'unnamed')}, {self.meta.get('classes')} classes"
            problem = f"belongs to another dictionary ({other}) than {dictionary}"
        elif highest >= charset.ctc_classes:
            problem = f"has a center of class {highest}, but the dictionary is {dictionary}"
        else:
            return
        raise DataError(
            f"{where} {problem}. Fix: export the centers again with this dictionary.", code="charset_mismatch"
        )


def read_centers(path: str | Path) -> CenterTable:
    """Read centers from our ``.npz``, or from PaddleOCR's ``train_center.pkl`` without running code of the file.

    Raises:
        DataError: the file is missing or damaged, or has other content.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file of centers {path}. {_FIX}", code="missing_file")
    with open_regular(path) as stream:
        is_zip = stream.read(2) == b"PK"
    arrays, meta = _read_npz(path) if is_zip else (_read_pickle(path), {})
    _check_arrays(arrays, path)
    return CenterTable(
        arrays["class_ids"].astype(np.int64),
        tuple(str(c) for c in arrays["characters"].ravel()),
        arrays["centers"].astype(np.float32),
        arrays["counts"].astype(np.int64),
        arrays["variance"].astype(np.float64),
        meta,
    )


def _read_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        arrays = load_arrays(path, _ARRAYS)
    except ValueError as error:
        raise DataError(
            f"{path} cannot be read as centers ({error}). It is truncated, damaged, or holds Python objects, which "
            f"are not read. {_FIX}",
            code="damaged_file",
        ) from error
    lacking = [name for name in _ARRAYS if name not in arrays]
    if lacking:
        raise DataError(
            f"{path} is not a file of centers (no {', '.join(lacking)}). {_FIX}", code="bad_content"
        )
    try:
        return arrays, json_object(str(arrays["meta"]))
    except ValueError as error:
        raise DataError(f"{path}: meta is not a JSON object. {_FIX}", code="bad_content") from error


def _read_pickle(path: Path) -> dict[str, np.ndarray]:
    try:
        content = load_plain_pickle(path)
    except PlainPickleError as error:
        raise DataError(
            f"{path} cannot be read as centers: {error}. Only a pickle of arrays by class id is read, and no code "
            f"in it is run. {_FIX}",
            code="damaged_file",
        ) from error
    try:
        ids = sorted(dict(content))
        centers = np.stack([np.asarray(content[key]) for key in ids])
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{path} does not hold centers by class id, as PaddleOCR's train_center.pkl does. {_FIX}",
            code="bad_content",
        ) from error
    return {
        "class_ids": np.array(ids),
        "characters": np.array([], np.str_),
        "centers": centers,
        "counts": np.zeros(len(ids)),
        "variance": np.zeros(len(ids)),
    }


def _check_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    ids = arrays["class_ids"]
    centers = arrays["centers"]
    k = len(ids) if ids.ndim == 1 else -1
    good = (
        k >= 0
        and ids.dtype.kind in "iu"
        and centers.ndim == 2
        and centers.dtype.kind in "iuf"
        and len(centers) == k
        and all(
            arrays[name].shape == (k,) and arrays[name].dtype.kind in "iuf" for name in ("counts", "variance")
        )
        and arrays["characters"].shape in ((0,), (k,))
        and (
            k == 0
            or (bool((np.diff(ids.astype(np.int64)) > 0).all()) and ids[0] >= 0 and ids[-1] <= _HIGHEST)
        )
    )
    if not good:
        raise DataError(f"{path}: the arrays of centers do not fit each other. {_FIX}", code="bad_content")
    if not centers.size:
        raise DataError(f"{path} holds no centers. {_FIX}", code="bad_content")
    with np.errstate(over="ignore"):
        finite = bool(np.isfinite(centers.astype(np.float32)).all())
    if not finite:
        raise DataError(
            f"{path}: a center is not finite. Fix: export the centers again from a model that has not diverged.",
            code="not_finite",
        )
