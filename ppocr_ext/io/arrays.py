"""Read arrays of an ``.npz`` without running code from it, within a limit of memory; imports no Paddle."""

from __future__ import annotations

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ppocr_ext.limits import most_memory, open_regular

_DAMAGE = (  # NumPy raises any of these for a damaged file, since it trusts the headers
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


def load_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Return those arrays of an ``.npz`` that ``names`` lists and the file has; None: all.

    Python objects are not read.

    Raises:
        ValueError: the file is missing, damaged, holds Python objects, or is compressed so far that it would take more
            memory than :func:`ppocr_ext.limits.most_memory` of its size.
    """
    try:
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as content:
            most = most_memory(os.fstat(stream.fileno()).st_size)
            if sum(member.file_size for member in content.zip.infolist()) > most:
                raise ValueError(f"it takes more memory than the limit for its size, {most:,} bytes")
            return {name: content[name] for name in (content if names is None else names) if name in content}
    except _DAMAGE as error:
        raise ValueError(str(error)) from error
