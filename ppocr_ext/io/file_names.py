"""Files named by what is in them, so that the names are comparable between machines; no Paddle."""

from __future__ import annotations

import hashlib
from pathlib import Path


def sha256_of(path: str | Path) -> str:
    """SHA-256 (hex) of a file, read in pieces.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def named_by_content(path: str | Path) -> str:
    """``NAME sha256:DIGEST``; the folder does not enter.

    Raises:
        OSError: the file cannot be read.
    """
    return f"{Path(path).name} sha256:{sha256_of(path)}"
