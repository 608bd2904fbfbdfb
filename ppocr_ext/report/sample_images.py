"""Read images for a page, from files and from LMDBs."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import cv2
import numpy as np

from ppocr_ext.data.lmdb.reader import LmdbSet, open_sets
from ppocr_ext.errors import DataError, MissingPackageError

_MOST_BYTES = 20 << 20  # of an image file
_WIDTH, _HEIGHT = 480, 96  # pixels of an image on the page, at most
_IN_LMDB = re.compile(r"(?P<folder>.+)#(?P<sample>[1-9][0-9]{0,8})", re.ASCII)  # as `eval` names its samples


class SampleImages:
    """Read the images of samples as PNG in base64, and count how many were found.

    Args:
        data_dir: start of relative paths; None: read no image.

    Attributes:
        wanted: images asked for.
        found: images that could be read.
    """

    def __init__(self, data_dir: Path | None) -> None:
        self.data_dir = data_dir
        self.wanted = self.found = 0
        self._sets: dict[Path, LmdbSet | None] = {}
        self._error = ""

    @property
    def note(self) -> str:
        """``0 of 12 images found below data``; empty if none is missing."""
        if self.found == self.wanted:
            return ""
        why = f" ({self._error.rstrip('.')})" if self._error else ""
        return f"{self.found:,} of {self.wanted:,} images found below {self.data_dir}{why}"

    def png(self, image: str) -> str:
        """Return the image, scaled down if it is large; empty if it cannot be read.

        Args:
            image: a path, or ``folder#12`` for sample 12 of an LMDB.
        """
        if not image or self.data_dir is None:
            return ""
        self.wanted += 1
        content = _read_file(self.data_dir / image) or self._read_lmdb(image, self.data_dir)
        png = _png(content) if content else ""
        self.found += bool(png)
        return png

    def _read_lmdb(self, image: str, data_dir: Path) -> bytes | None:
        name = _IN_LMDB.fullmatch(image)
        if name is None:
            return None
        folder = Path(name["folder"])
        if folder not in self._sets:
            self._sets[folder] = self._open(folder, data_dir)
        opened = self._sets[folder]
        content = None if opened is None else opened.image(int(name["sample"]))
        return bytes(content) if content is not None and len(content) <= _MOST_BYTES else None

    def _open(self, folder: Path, data_dir: Path) -> LmdbSet | None:
        """Open the LMDB at its path of the evaluation, or below ``data_dir`` by its own name."""
        moved = [data_dir] if data_dir.resolve().name == folder.name else []
        for place in (data_dir / folder, folder, data_dir / folder.name, *moved):
            try:
                if (place / "data.mdb").is_file():
                    return next((found for found in open_sets(place) if found.path == place), None)
            except (DataError, MissingPackageError) as error:
                self._error = str(error)
                return None
            except (OSError, ValueError):  # not a folder name
                return None
        return None


def _read_file(path: Path) -> bytes | None:
    try:
        if not path.is_file() or not 0 < path.stat().st_size <= _MOST_BYTES:
            return None
        return path.read_bytes()
    except (OSError, ValueError):  # moved since, or not a file name
        return None


def _png(content: bytes) -> str:
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        return ""
    height, width = pixels.shape[:2]
    scale = min(1.0, _WIDTH / width, _HEIGHT / height)
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return base64.b64encode(bytes(cv2.imencode(".png", pixels)[1])).decode("ascii")
