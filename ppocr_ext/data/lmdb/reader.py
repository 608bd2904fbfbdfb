"""LMDBs of text lines as PaddleOCR's ``LMDBDataSet`` reads them; imports no Paddle.

Keys: ``num-samples``, and for each sample, from 1, ``image-%09d`` (an encoded image) and ``label-%09d``
(UTF-8). A folder may hold several LMDBs in folders of their own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppocr_ext.errors import DataError, MissingPackageError

_DATA = "data.mdb"
_COUNT = "num-samples"
_OPEN: dict[tuple[int, Path], Any] = {}  # a process may open an LMDB once only


@dataclass(frozen=True)
class LmdbSet:
    """One LMDB.

    Attributes:
        path: its folder.
        count: samples in it, by its own ``num-samples``.
        environment: of the package ``lmdb``; shared by all who read this folder in this process.
        transaction: a read transaction, for one thread at a time.
    """

    path: Path
    count: int
    environment: Any = field(repr=False)
    transaction: Any = field(repr=False)

    def label(self, index: int) -> bytes | None:
        """The label of sample ``index`` (from 1); None where there is none."""
        value: bytes | None = self.transaction.get(b"label-%09d" % index)
        return value

    def image(self, index: int) -> bytes | None:
        """The encoded image of sample ``index`` (from 1); None where there is none."""
        value: bytes | None = self.transaction.get(b"image-%09d" % index)
        return value


def open_sets(data_dir: str | Path) -> list[LmdbSet]:
    """The LMDBs in and below ``data_dir``, in the order of their paths.

    Raises:
        DataError: there is none, one cannot be read, or its number of samples is missing or wrong.
        MissingPackageError: the package ``lmdb`` is not installed.
    """
    root = Path(data_dir)
    if not root.is_dir():
        what = "is no folder" if root.exists() else "is not there"
        raise DataError(f"{root} {what}. LMDBDataSet takes the folder of an LMDB as data_dir.")
    return [_open(folder) for folder in _folders(root)]


def _folders(root: Path) -> list[Path]:
    """Folders with an LMDB: those that hold one, and, as PaddleOCR counts, those without folders in them."""
    found = [
        Path(path)
        for path, folders, files in os.walk(root, followlinks=False)
        if _DATA in files or not folders
    ]
    return sorted(found)


def _open(folder: Path) -> LmdbSet:
    if not (folder / _DATA).is_file():
        raise DataError(
            f"{folder} is no LMDB: it has no {_DATA}. Correct data_dir; `ppocr-ext make-lmdb` makes one of label files."
        )
    environment = _environment(folder)
    transaction = environment.begin(write=False)
    return LmdbSet(folder, _count(folder, transaction), environment, transaction)


def _environment(folder: Path) -> Any:
    try:
        import lmdb
    except ModuleNotFoundError as error:
        raise MissingPackageError("LMDBDataSet needs the package lmdb: pip install lmdb") from error
    key = (os.getpid(), folder.resolve())
    if key not in _OPEN:
        try:
            _OPEN[key] = lmdb.open(
                str(folder), readonly=True, lock=False, readahead=False, meminit=False, max_readers=32
            )
        except lmdb.Error as error:
            raise DataError(
                f"{folder} cannot be read as an LMDB: {_said(folder, error)}. Is it complete? `ppocr-ext make-lmdb` "
                f"makes one of label files."
            ) from error
    return _OPEN[key]


def _said(folder: Path, error: Exception) -> str:
    return str(error).removeprefix(f"{folder}: ")


def _count(folder: Path, transaction: Any) -> int:
    """``num-samples``, checked against the samples that are there."""
    value: bytes | None = transaction.get(_COUNT.encode())
    if value is None:
        raise DataError(
            f"{folder} has no key {_COUNT}: it was not written to its end, or is no LMDB of text lines "
            f"(keys {_COUNT}, image-%09d, label-%09d, from 1)."
        )
    if not value.isdigit() or int(value) < 1:
        raise DataError(f"{folder}: {_COUNT} is {bytes(value)!r}, not a number of samples of at least 1.")
    count = int(value)
    if transaction.get(b"label-%09d" % count) is None:
        raise DataError(
            f"{folder}: {_COUNT} is {count}, but there is no label-{count:09d}: was it written to its end? "
            f"Make it again."
        )
    if transaction.get(b"label-%09d" % (count + 1)) is not None:
        raise DataError(
            f"{folder}: {_COUNT} is {count}, but there is a label-{count + 1:09d}: samples behind the "
            f"number would never be read. Correct {_COUNT}, or make it again."
        )
    return count
