"""Digests of files, names by content, and the folder of files that can be made again; no Paddle."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.limits import open_regular

CACHE_VARIABLE = "PPOCR_EXT_CACHE"


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, read in pieces.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while block := stream.read(1 << 20):  # hashlib.file_digest needs Python 3.11
            digest.update(block)
    return digest.hexdigest()


def named_by_content(path: str | Path) -> str:
    """Return ``NAME sha256:DIGEST``, without the folder.

    Raises:
        OSError: the file cannot be read.
    """
    return f"{Path(path).name} sha256:{file_digest(path)}"


def cache_folder(kind: str) -> Path:
    """Return ``$PPOCR_EXT_CACHE/KIND``, by default ``~/.cache/ppocr_ext/KIND``; it may not exist.

    Raises:
        PPOCRExtError: the variable is not set, and this user has no home folder.
    """
    try:
        return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "ppocr_ext") / kind
    except RuntimeError as error:
        raise PPOCRExtError(
            f"The cache folder is not known: this user has no home folder. Fix: set {CACHE_VARIABLE} to a folder that "
            f"you may write to.",
            code="cache_folder",
        ) from error
