"""Write files so that they are complete or missing, never cut off."""

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
    """Open a stream whose content gets the name ``path`` when the block ends without an exception.

    The temporary file is in the same folder, which is created if needed; after an exception it is
    removed and ``path`` is unchanged.

    Args:
        path: the file to write or replace.
        sync: wait until the content is on the disk before renaming. Use False for many files that are
            easy to write again.

    Raises:
        OSError: the folder cannot be created or written to.
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
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # messages name the file that the caller asked for
        raise


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically, with ``\\n`` line ends as they are."""
    with atomic_writer(path) as stream:
        stream.write(text.encode("utf-8"))


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before a long job starts.

    Raises:
        DataError: it is a folder, or its folder cannot be written to.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder. Fix: give the name of a file.", code="not_a_file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.", code="unwritable_file") from error
