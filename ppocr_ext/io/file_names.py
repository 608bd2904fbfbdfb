"""Names of files by content, so that they are comparable between machines; no Paddle."""

from __future__ import annotations

import hashlib
from pathlib import Path


def named_by_content(path: str | Path) -> str:
    """Return ``NAME sha256:DIGEST``, without the folder.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()  # hashlib.file_digest came with Python 3.11
    with Path(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return f"{Path(path).name} sha256:{digest.hexdigest()}"
