"""Pictures of lines for a page, from image files and from LMDBs."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import cv2
import numpy as np

from ppocr_ext.data.lmdb.reader import LmdbSet, open_sets
from ppocr_ext.errors import DataError, MissingPackageError

_MOST_BYTES = 20 << 20  # of an encoded image
_WIDTH, _HEIGHT = 480, 96  # pixels of a picture, at most
_IN_LMDB = re.compile(r"(?P<folder>.+)#(?P<sample>[1-9][0-9]{0,8})", re.ASCII)  # as `eval` names its samples


class Pictures:
    """The images of lines as base64 of a PNG, and how many were found.

    Args:
        data_dir: where relative paths begin; None: no picture is looked for.

    Attributes:
        wanted: images that were asked for; ``found``: those among them that could be read.
    """

    def __init__(self, data_dir: Path | None) -> None:
        self.data_dir = data_dir
        self.wanted = self.found = 0
        self._sets: dict[Path, LmdbSet | None] = {}
        self._fault = ""

    @property
    def note(self) -> str:
        """``0 of 12 images found below data``; empty where none is missing."""
        if self.found == self.wanted:
            return ""
        why = f" ({self._fault.rstrip('.')})" if self._fault else ""
        return f"{self.found:,} of {self.wanted:,} images found below {self.data_dir}{why}"

    def of(self, image: str) -> str:
        """The image, made smaller where it is large; empty where it cannot be read.

        Args:
            image: a path, or ``folder#12``, sample 12 of an LMDB.
        """
        if not image or self.data_dir is None:
            return ""
        self.wanted += 1
        content = _of_file(self.data_dir / image) or self._of_lmdb(image, self.data_dir)
        png = _png(content) if content else ""
        self.found += bool(png)
        return png

    def _of_lmdb(self, image: str, data_dir: Path) -> bytes | None:
        name = _IN_LMDB.fullmatch(image)
        if name is None:
            return None
        folder = Path(name["folder"])
        if folder not in self._sets:
            self._sets[folder] = self._opened(folder, data_dir)
        opened = self._sets[folder]
        content = None if opened is None else opened.image(int(name["sample"]))
        return bytes(content) if content is not None and len(content) <= _MOST_BYTES else None

    def _opened(self, folder: Path, data_dir: Path) -> LmdbSet | None:
        """The LMDB, where it was at the evaluation or below ``data_dir`` by its own name."""
        moved = [data_dir] if data_dir.resolve().name == folder.name else []
        for place in (data_dir / folder, folder, data_dir / folder.name, *moved):
            try:
                if (place / "data.mdb").is_file():
                    return next((found for found in open_sets(place) if found.path == place), None)
            except (DataError, MissingPackageError) as fault:
                self._fault = str(fault)
                return None
            except (OSError, ValueError):  # no name of a folder
                return None
        return None


def _of_file(path: Path) -> bytes | None:
    try:
        if not path.is_file() or not 0 < path.stat().st_size <= _MOST_BYTES:
            return None
        return path.read_bytes()
    except (OSError, ValueError):  # moved away since, or no name of a file
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
