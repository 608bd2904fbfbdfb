"""Check that a file, or bytes, are an image that OpenCV (with which PaddleOCR reads) can decode; imports no Paddle."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from posixpath import abspath, islink, join, realpath  # a Path for each line would cost more than the check

from ppocr_ext.data.label_file import quotes_hint
from ppocr_ext.data.sample_rules import ImageCheck, SampleIssue
from ppocr_ext.io.image_pixels import JPEG, PNG, PixelLimitError, check_size, decode_image, most_image_bytes
from ppocr_ext.limits import MAX_IMAGE_PIXELS, open_descriptor, read_at_most

_PNG_START = PNG + b"\0\0\0\rIHDR"  # how each PNG begins; width and height follow
_PNG_END = b"IEND\xaeB`\x82"
_JPEG_END = b"\xff\xd9"
_HEAD = 1024  # bytes; most JPEGs state their size within them
_TAIL = 8
# Bytes of the first read: the system reads as many anyway, and often they are the whole image.
_FIRST = 1 << 14
_FOLDERS = 10_000  # limit of the folders whose real paths are kept in memory
_png_size = struct.Struct(">II").unpack_from


class ImageFolder:
    """The images of label files; paths are joined as PaddleOCR joins them.

    Args:
        data_dir: folder that relative paths start from.
        check: how to check an image, see :class:`ppocr_ext.data.sample_rules.SampleRules`.
        allow_outside: images may lie outside ``data_dir``, also through a symbolic link.
        max_pixels: the limit of pixels of an image.
    """

    def __init__(
        self,
        data_dir: str | Path,
        check: ImageCheck,
        allow_outside: bool,
        max_pixels: int = MAX_IMAGE_PIXELS,
    ) -> None:
        self._data_dir = str(data_dir)
        self._check: ImageCheck = check
        self._max_pixels = max_pixels
        self._root = None if allow_outside else join(realpath(self._data_dir), "")
        self._real: dict[str, str] = {}
        self._start = join(self._data_dir, "")
        self._how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if allow_outside else os.O_NOFOLLOW)

    def path(self, name: str) -> str:
        """Return the path of the image that a label file calls ``name``."""
        return join(self._data_dir, name)

    def read(self, name: str) -> bytes:
        """Return the content of the image that a label file calls ``name``.

        Raises:
            OSError: it cannot be read, is not a regular file, or is too large for an image within the limit.
        """
        return read_at_most(self.path(name), most_image_bytes(self._max_pixels))

    def content(self, name: str) -> bytes | SampleIssue:
        """Return the content of an image, which is opened once, or why it cannot be used; it is not decoded."""
        path = self.path(name)
        if (issue := self._outside(path)) is not None:
            return issue
        try:
            content = self.read(name)
        except (OSError, ValueError) as error:
            return _unreadable(path, error)
        return content or SampleIssue("broken_image", f"{path} is empty")

    def is_whole(self, name: str) -> bool:
        """Return True if the header shows that an image is allowed and whole. If False, :meth:`issue` decides."""
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

    def issue(self, names: tuple[str, ...]) -> SampleIssue | None:
        """Return the first issue of the images ``names``, which must all be good, since any of them may be drawn."""
        for name in names:
            path = self.path(name)
            issue = self._outside(path) or image_issue(path, self._check, self._max_pixels)
            if issue is not None:
                hint = quotes_hint(name) + self._slash_hint(name) if issue.reason == "missing_image" else ""
                return SampleIssue(issue.reason, issue.detail + hint)
        return None

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

    def _slash_hint(self, name: str) -> str:
        """Return the path that exists if ``\\`` in ``name`` means ``/``; empty if there is none in the folder."""
        turned = name.replace("\\", "/")
        inside = not turned.startswith("/") and ".." not in turned.split("/")
        if turned == name or not inside or not Path(self.path(turned)).is_file():
            return ""
        return f", but there is {self.path(turned)}: write `/` instead of `\\`"


def image_issue(path: str, check: ImageCheck, max_pixels: int = MAX_IMAGE_PIXELS) -> SampleIssue | None:
    """Return why the file ``path`` is not usable as an image, or None.

    The reason is ``missing_image``, ``broken_image`` or ``too_many_pixels``.
    """
    try:
        handle, size = open_descriptor(path)  # a file object for each image would cost more than the check
        try:
            head = os.pread(handle, _HEAD, 0)
            tail = os.pread(handle, _TAIL, max(0, size - _TAIL))

            def read(at: int, count: int) -> bytes:
                return head[at : at + count] if at + count <= len(head) else os.pread(handle, count, at)

            def whole() -> bytes:
                return read_at_most(path, most_image_bytes(max_pixels))

            return _issue(path, size, (head, tail), read, whole, check, max_pixels)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        return _unreadable(path, error)


def _unreadable(path: str, error: OSError | ValueError) -> SampleIssue:
    """Return the issue of a file that cannot be opened; a ValueError is about a null byte in the path."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return SampleIssue("missing_image", f"there is no file {path}")
    reason = getattr(error, "strerror", None) or error
    return SampleIssue("broken_image", f"{path} cannot be read: {reason}")


def content_issue(
    content: bytes, name: str, check: ImageCheck, max_pixels: int = MAX_IMAGE_PIXELS
) -> SampleIssue | None:
    """Return why the encoded image ``content`` is not usable (``broken_image``, ``too_many_pixels``), or None.

    Args:
        content: a whole encoded image.
        name: the name of the image in the details.
        check: see :class:`ppocr_ext.data.sample_rules.SampleRules`.
        max_pixels: the limit of pixels of an image.
    """

    def read(at: int, count: int) -> bytes:
        return content[at : at + count]

    ends = content[:_HEAD], content[-_TAIL:]
    return _issue(name, len(content), ends, read, lambda: content, check, max_pixels)


def _issue(
    name: str,
    size: int,
    ends: tuple[bytes, bytes],
    read: Callable[[int, int], bytes],
    whole: Callable[[], bytes],
    check: ImageCheck,
    max_pixels: int,
) -> SampleIssue | None:
    """Return why an image of ``size`` bytes is not usable. All of it is read only if its ends do not tell."""
    if not size:
        return SampleIssue("broken_image", f"{name} is empty")
    if check == "none":
        return None
    try:
        check_size(read, size, max_pixels)
        if check == "decode" or not looks_whole(*ends, size):
            decode_image(whole(), max_pixels)
    except PixelLimitError as error:
        return SampleIssue("too_many_pixels", f"{name} ({size:,} bytes) {error} (max_image_pixels)")
    except ValueError as error:
        return SampleIssue("broken_image", f"{name} ({size:,} bytes) {error}")
    return None


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
