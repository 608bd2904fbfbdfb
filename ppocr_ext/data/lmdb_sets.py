"""Read LMDBs of text lines as PaddleOCR's ``LMDBDataSet`` does; imports no Paddle.

Keys: ``num-samples``, and for each sample, from 1, ``image-%09d`` (an encoded image) and ``label-%09d``
(UTF-8). A folder may hold several LMDBs, each in its own subfolder.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ppocr_ext.errors import DataError, MissingPackageError

DATA_FILE = "data.mdb"
COUNT_KEY = "num-samples"
_OPEN: dict[tuple[int, Path], Any] = {}  # a process can open an LMDB only once


@dataclass(frozen=True)
class LmdbSet:
    """One LMDB.

    Attributes:
        path: its folder.
        count: samples in it, by its own ``num-samples``.
        environment: the environment of the package ``lmdb``, which all readers of this folder in this process share.
        transaction: a read transaction, for one thread at a time.
    """

    path: Path
    count: int
    environment: Any = field(repr=False)
    transaction: Any = field(repr=False)

    def label(self, index: int) -> bytes | None:
        """Return the label of sample ``index`` (from 1), or None.

        Raises:
            DataError: the LMDB is damaged there.
        """
        return _get(self.path, self.transaction, b"label-%09d" % index)

    def image(self, index: int) -> bytes | None:
        """Return the encoded image of sample ``index`` (from 1), or None.

        Raises:
            DataError: the LMDB is damaged there.
        """
        return _get(self.path, self.transaction, b"image-%09d" % index)


def import_lmdb() -> Any:
    """Return the package ``lmdb``.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return import_module("lmdb")
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "The package lmdb is not installed. Fix: pip install lmdb", code="missing_package"
        ) from error


def open_sets(data_dir: str | Path) -> list[LmdbSet]:
    """Return the LMDBs in and below ``data_dir``, in the order of their paths.

    Raises:
        DataError: there is none, one cannot be read, or its number of samples is missing or wrong.
        MissingPackageError: the package ``lmdb`` is not installed.
    """
    root = Path(data_dir)
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "does not exist"
        raise DataError(
            f"{root} {what}. Fix: set data_dir of LMDBDataSet to the folder of an LMDB.",
            code="missing_folder",
        )
    # As PaddleOCR does, open the folders that hold an LMDB, and those without subfolders.
    folders = [path for path, below, files in os.walk(root) if DATA_FILE in files or not below]
    return [open_set(folder) for folder in sorted(map(Path, folders))]


def open_set(folder: Path) -> LmdbSet:
    """Return the LMDB in ``folder``.

    Raises:
        DataError, MissingPackageError: as :func:`open_sets`.
    """
    if not (folder / DATA_FILE).is_file():
        raise DataError(
            f"{folder} is not an LMDB: it has no {DATA_FILE}. Fix: correct data_dir; `ppocr-ext make-lmdb` makes an "
            f"LMDB from label files.",
            code="not_an_lmdb",
        )
    lmdb = import_lmdb()
    key = (os.getpid(), folder.resolve())
    if key not in _OPEN:
        try:
            opened = lmdb.open(
                str(folder), readonly=True, lock=False, readahead=False, meminit=False, max_readers=32
            )
        except lmdb.Error as error:
            raise _damaged(folder, str(error)) from error
        stated = (opened.info()["last_pgno"] + 1) * opened.stat()["psize"]
        size = (folder / DATA_FILE).stat().st_size
        if size < stated:  # reading behind its end would kill the process (SIGBUS)
            opened.close()
            raise _damaged(folder, f"{DATA_FILE} is truncated: it has {size:,} of {stated:,} bytes")
        _OPEN[key] = opened
    transaction = _OPEN[key].begin(write=False)
    return LmdbSet(folder, _count(folder, transaction), _OPEN[key], transaction)


def _get(folder: Path, transaction: Any, key: bytes) -> bytes | None:
    """Return the value of a key, or None.

    Raises:
        DataError: the LMDB is damaged there.
    """
    try:
        return transaction.get(key)
    except import_lmdb().Error as error:
        raise _damaged(folder, f"{key.decode()}: {error}") from error


def _damaged(folder: Path, reason: str) -> DataError:
    return DataError(
        f"{folder} cannot be read as an LMDB: {reason.removeprefix(f'{folder}: ')}. Fix: make it again, for example "
        f"with `ppocr-ext make-lmdb`.",
        code="damaged_file",
    )


def _count(folder: Path, transaction: Any) -> int:
    """Return ``num-samples``.

    Raises:
        DataError: it is missing, or is not the number of samples.
    """
    value = _get(folder, transaction, COUNT_KEY.encode())
    count = int(value) if value is not None and value.isdigit() else 0
    if value is None:
        issue = f"no key {COUNT_KEY}: it is incomplete, or not an LMDB of text lines (keys image-%09d, label-%09d)"
    elif count < 1:
        issue = f"{COUNT_KEY} is {bytes(value)!r}, not a number of at least 1"
    elif _get(folder, transaction, b"label-%09d" % count) is None:
        issue = f"{COUNT_KEY} is {count}, but there is no label-{count:09d}"
    elif _get(folder, transaction, b"label-%09d" % (count + 1)) is not None:
        issue = f"{COUNT_KEY} is {count}, but there is a label-{count + 1:09d}, which would never be read"
    else:
        return count
    raise DataError(f"{folder}: {issue}. Fix: make the LMDB again.", code="bad_num_samples")
