"""Check that a file, or bytes, are an image that OpenCV (with which PaddleOCR reads) can decode; imports no Paddle."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from posixpath import (  # a Path for each line would cost more than the check
    abspath,
    isfile,
    islink,
    join,
    realpath,
    splitext,
)
from typing import Any

from ppocr_ext.data.sample_rules import ImageCheck, SampleIssue
from ppocr_ext.io.image_pixels import (
    JPEG,
    PNG,
    TALL,
    PixelLimitError,
    check_size,
    decode_image,
    most_image_bytes,
)
from ppocr_ext.limits import MAX_IMAGE_PIXELS, read_at_most

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".jp2", ".pbm", ".pgm", ".ppm")
_PNG_START = PNG + b"\0\0\0\rIHDR"  # how each PNG begins; width and height follow
_PNG_END = b"IEND\xaeB`\x82"
_JPEG_END = b"\xff\xd9"
_TAIL = 8
# Bytes of the first read: the system reads as many anyway, and often they are the whole image.
_FIRST = 1 << 14
_LEAST_SIDE = 5  # pixels; no character can be read in fewer
_LEAST_CONTRAST = 12  # levels (of 255) between the darkest and the lightest pixel
_TURNED = 0.3  # height to width of vertical text, at least, for each character: squeezed words are less high
_NARROW = (
    0.6  # width to height of a character at most, where two rows are looked for: those of one row are wider
)
_GAP = 0.4  # share of edges between two rows of text, at most; in most images of one row there are as many as elsewhere
_SAME_SHAPE = 1.25  # ratio of two ratios of width to height, since sizes may have been rounded or scaled
_FOLDERS = 10_000  # limit of the folders whose real paths are kept in memory
_png_size = struct.Struct(">II").unpack_from


class ImageFolder:
    """The images of label files; paths are joined as PaddleOCR joins them.

    Args:
        data_dir: folder that relative paths start from.
        allow_outside: images may lie outside ``data_dir``, also through a symbolic link.
        max_pixels: the limit of pixels of an image.
    """

    def __init__(
        self,
        data_dir: str | Path,
        allow_outside: bool,
        max_pixels: int = MAX_IMAGE_PIXELS,
    ) -> None:
        self._data_dir = str(data_dir)
        self._max_pixels = max_pixels
        self._root = None if allow_outside else join(realpath(self._data_dir), "")
        self._real: dict[str, str] = {}
        self._start = join(self._data_dir, "")
        self._how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if allow_outside else os.O_NOFOLLOW)

    def path(self, name: str) -> str:
        """Return the path of the image that a label file calls ``name``."""
        return join(self._data_dir, name)

    def read(self, name: str) -> bytes | SampleIssue:
        """Return the content of an image, which is opened once, or why it cannot be read; it is not decoded."""
        path = self.path(name)
        return self._outside(path) or read_image_file(path, self._max_pixels)

    def is_whole(self, name: str) -> bool:
        """Return True if its first and last bytes show that an image is allowed and whole; else it must be read."""
        path = name if name.startswith("/") else self._start + name
        if self._root is not None and not self._real.get(path.rpartition("/")[0], "").startswith(self._root):
            return False
        try:
            handle = os.open(path, self._how)
            try:
                head = os.pread(handle, _FIRST, 0)  # a pipe raises an OSError here
                size = len(head)
                tail = head[-_TAIL:]
                if size == _FIRST:
                    size = os.lseek(handle, 0, os.SEEK_END)  # a device gives 0 or an OSError
                    tail = os.pread(handle, _TAIL, max(0, size - _TAIL))
            finally:
                os.close(handle)
            if not looks_whole(head, tail, size):
                return False
            check_size(lambda at, count: head[at : at + count], size, self._max_pixels, head)
        except (OSError, ValueError):
            return False
        return True

    def _outside(self, path: str) -> SampleIssue | None:
        """Return the issue of a path that leads outside ``data_dir``, also through a symbolic link."""
        if self._root is None:
            return None
        try:
            real = self._real_path(path)
        except (OSError, ValueError):
            # The image check reports a path that is too long or has a null byte.
            return None
        if real.startswith(self._root):
            return None
        by_link = abspath(path).startswith(join(abspath(self._data_dir), ""))
        link = f": a symbolic link leads to {real}" if by_link else ""
        return SampleIssue("outside_data_dir", f"{path} is outside data_dir {self._data_dir}{link}")

    def _real_path(self, path: str) -> str:
        """Return the path without symbolic links. The real path of a folder is looked up once."""
        folder, _, name = path.rpartition("/")
        if name in ("", ".", "..") or islink(path):
            return realpath(path)
        if len(self._real) > _FOLDERS:
            self._real.clear()
        real = self._real.get(folder)  # one look: another thread may empty the cache
        if real is None:
            real = self._real[folder] = join(realpath(folder or "/" * path.startswith("/") or "."), "")
        return real + name


def read_image_file(path: str | Path, max_pixels: int = MAX_IMAGE_PIXELS) -> bytes | SampleIssue:
    """Return the content of the image file ``path``, or why it cannot be read.

    The reason is ``missing_image``, ``broken_image``, or ``too_many_pixels`` for a file that is too large for an image
    within the limit.
    """
    try:
        return read_at_most(path, most_image_bytes(max_pixels))
    except (FileNotFoundError, NotADirectoryError):
        return SampleIssue("missing_image", f"there is no file {path}{in_its_place(str(path))}")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        is_large = getattr(error, "errno", None) == errno.EFBIG
        reason = getattr(error, "strerror", None) or error
        return SampleIssue(
            "too_many_pixels" if is_large else "broken_image", f"{path} cannot be read: {reason}"
        )


def in_its_place(path: str) -> str:
    """Return which file there is in place of a missing image: with ``/`` for ``\\``, no quotes, or another ending."""
    stored = path.replace("\\", "/").replace('"', "")
    if ".." in stored.removeprefix(path.partition("\\")[0]).split(
        "/"
    ):  # it could lead out of the data folder
        return ""
    endings = (form(each) for each in SUFFIXES for form in (str.lower, str.upper))
    found = next(filter(isfile, (stored, *map(splitext(stored)[0].__add__, endings))), None)
    return f", but there is {found}: write the path as the file is stored" if found else ""


def content_issue(
    content: bytes | SampleIssue, name: str, check: ImageCheck, max_pixels: int = MAX_IMAGE_PIXELS
) -> SampleIssue | None:
    """Return why an encoded image is not usable (``broken_image``, ``too_many_pixels``), or None.

    Args:
        content: the whole encoded image, or the issue that is returned.
        name: the name of the image in the details.
        check: see :class:`ppocr_ext.data.sample_rules.SampleRules`.
        max_pixels: the limit of pixels of an image.
    """
    if isinstance(content, SampleIssue):
        return content
    if content and check == "none":
        return None
    try:
        if check == "header" and looks_whole(content, content[-_TAIL:], len(content)):
            check_size(lambda at, count: content[at : at + count], len(content), max_pixels)
        else:
            decode_image(content, max_pixels)
    except ValueError as error:
        return _undecodable(content, name, error)
    return None


def image_pixels(content: bytes | SampleIssue, name: str, max_pixels: int = MAX_IMAGE_PIXELS) -> Any:
    """Return the pixels of an encoded image, uint8 [H, W, 3], BGR, or the issue of :func:`content_issue`."""
    if isinstance(content, SampleIssue):
        return content
    try:
        return decode_image(content, max_pixels)
    except ValueError as error:
        return _undecodable(content, name, error)


def _undecodable(content: bytes, name: str, error: ValueError) -> SampleIssue:
    reason = "too_many_pixels" if isinstance(error, PixelLimitError) else "broken_image"
    return SampleIssue(reason, f"{name} ({len(content):,} bytes) {error}")


def looks_whole(head: bytes, tail: bytes, size: int) -> bool:
    """Return True if first bytes, last bytes and size agree with PNG, JPEG, BMP or WebP.

    If False, the image may still be whole: only a decoder can tell.

    Args:
        head: the first 32 bytes or more of the file.
        tail: its last 8 bytes.
        size: its length in bytes.
    """
    if head.startswith(_PNG_START):
        return tail == _PNG_END and 0 not in _png_size(head, 16)
    if head.startswith(JPEG):
        return tail.endswith(_JPEG_END)
    if head.startswith(b"BM"):
        return int.from_bytes(head[2:6], "little") == size
    is_webp = head.startswith(b"RIFF") and head[8:12] == b"WEBP"
    return is_webp and int.from_bytes(head[4:8], "little") + 8 == size


def unseen_issue(pixels: Any, content: bytes, label: str, stated: Sequence[str] = ()) -> SampleIssue | None:
    """Return why nothing can be read in an image (a key of ``RULES`` of issue_rules.py), or None.

    Args:
        pixels: uint8 [H, W, 3].
        content: the encoded image.
        label: its text.
        stated: width and height in its line, if it has them; another shape is an issue too.
    """
    height, width = pixels.shape[:2]
    size = f"{width}×{height} pixels"
    if min(height, width) < _LEAST_SIDE:
        return SampleIssue("tiny_image", size)
    if len(label) > 2 and height >= max(TALL, _TURNED * len(label)) * width:
        return SampleIssue("tall_image", f"{size} for {len(label)} characters")
    if len(label) > 3 and width < _NARROW * len(label) * height and _has_two_rows(pixels):
        return SampleIssue("two_rows", f"{size} for {len(label)} characters")
    contrast = int(pixels.max()) - int(pixels.min())
    if contrast < _LEAST_CONTRAST:
        return SampleIssue("flat_image", f"{_why_flat(content)}, a contrast of {contrast} of 255")
    if stated and not 1 / _SAME_SHAPE < float(stated[0]) / float(stated[1]) * height / width < _SAME_SHAPE:
        line = f"{stated[0]}×{stated[1]} pixels in the line"
        return SampleIssue("other_size", f"{line}, {width}×{height} in the image; the label is {label!r}")
    return None


def _has_two_rows(pixels: Any) -> bool:
    """Return True if there is a gap near the middle: rows of pixels in which less changes from left to right."""
    import cv2
    import numpy as np

    small = cv2.resize(pixels, (96, 32), interpolation=cv2.INTER_AREA)
    edges = cv2.absdiff(small[:, 5:-4], small[:, 4:-5]).sum(
        axis=(1, 2)
    )  # without a frame on the left and right
    gap = 10 + int(edges[10:22].argmin())
    return bool(
        edges[gap] < _GAP * edges.max()
        and edges[gap] < _GAP * min(np.sort(part)[-5:].mean() for part in (edges[:gap], edges[gap + 1 :]))
    )


def _why_flat(content: bytes) -> str:
    """Return why an image looks flat to PaddleOCR, which reads 8 bits of three channels."""
    import cv2
    import numpy as np

    stored: Any = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)
    if stored is None or stored.max() == stored.min():
        return "one colour"
    if stored.ndim == 3 and stored.shape[2] == 4 and stored[..., 3].max() != stored[..., 3].min():
        return "drawn only in its transparency"
    if stored.dtype == np.uint16:
        return f"16 bits of which {int(stored.max()):,} of 65,535 are used"
    return "nearly one colour"
