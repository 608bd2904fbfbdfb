"""Files that are complete under their name or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ppocr_ext.errors import DataError


@contextmanager
def atomic_writer(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """A stream whose content takes the name ``path`` when the block ends without an exception.

    The temporary file lies in the same folder, which is made if it is not there; after an exception it
    is removed and ``path`` is as it was.

    Args:
        path: the file to write or replace.
        sync: wait until the content is on the disk before renaming. Leave it out for files that are
            many and easily made again.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            yield stream
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as fault:
        temporary.unlink(missing_ok=True)
        if isinstance(fault, OSError) and fault.filename in (None, str(temporary)):
            fault.filename = str(
                path
            )  # what is full, or may not be written, is named by the file that was wanted
        raise


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically, with ``\\n`` line ends as they are."""
    with atomic_writer(path) as stream:
        stream.write(text.encode("utf-8"))


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before the work and not after it.

    Raises:
        DataError: it is a folder, or its folder cannot be written to.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder. Give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as fault:
        raise DataError(f"{path} cannot be written: {fault.strerror}.") from fault
