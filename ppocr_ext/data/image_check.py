"""Check that a file, or bytes, are an image that OpenCV (with which PaddleOCR reads) can decode; imports no Paddle."""

from __future__ import annotations

import os
from pathlib import Path
from posixpath import abspath, join  # on strings: a Path for each line costs more than the check

from ppocr_ext.data.label_file import quotes_hint
from ppocr_ext.data.sample_rules import ImageCheck, SampleIssue

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB\x60\x82"
_JPEG = b"\xff\xd8\xff"
_JPEG_END = b"\xff\xd9"
_HEAD, _TAIL = 32, 8  # bytes


class ImageFolder:
    """The images of label files: paths joined as PaddleOCR joins them.

    Args:
        data_dir: folder that relative paths start from.
        check: how to check an image, see :class:`ppocr_ext.data.sample_rules.SampleRules`.
        allow_outside: images may lie outside ``data_dir``.
    """

    def __init__(self, data_dir: str | Path, check: ImageCheck, allow_outside: bool) -> None:
        self._data_dir = str(data_dir)
        self._check = check
        self._root = None if allow_outside else join(abspath(self._data_dir), "")

    def path(self, name: str) -> str:
        """Return the path of the image that a label file calls ``name``."""
        return join(self._data_dir, name)

    def issue(self, names: tuple[str, ...]) -> SampleIssue | None:
        """Return the first issue of the images ``names``: any of them may be drawn, so each must be good."""
        for name in names:
            path = self.path(name)
            if self._root is not None and not abspath(path).startswith(self._root):
                return SampleIssue("outside_data_dir", f"{path} is outside data_dir {self._data_dir}")
            issue = image_issue(path, self._check)
            if issue is not None:
                hint = quotes_hint(name) + self._slash_hint(name) if issue.reason == "missing_image" else ""
                return SampleIssue(issue.reason, issue.detail + hint)
        return None

    def _slash_hint(self, name: str) -> str:
        """Return the path that exists if ``\\`` in ``name`` means ``/``; empty if there is none in the folder."""
        turned = name.replace("\\", "/")
        inside = not turned.startswith("/") and ".." not in turned.split("/")
        if turned == name or not inside or not Path(self.path(turned)).is_file():
            return ""
        return f", but there is {self.path(turned)}: write `/` instead of `\\`"


def image_issue(path: str, check: ImageCheck) -> SampleIssue | None:
    """Return why the file ``path`` is not usable as an image (``missing_image``, ``broken_image``), or None."""
    try:
        handle = os.open(path, os.O_RDONLY)  # a file object for each image would take longer than the check
        try:
            size = os.fstat(handle).st_size
            head, tail = os.pread(handle, _HEAD, 0), os.pread(handle, _TAIL, max(0, size - _TAIL))
        finally:
            os.close(handle)
        if size and (check == "none" or check == "header" and looks_whole(head, tail, size)):
            return None
        return content_issue(Path(path).read_bytes(), path, "decode")
    except (FileNotFoundError, NotADirectoryError):
        return SampleIssue("missing_image", f"there is no file {path}")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        return SampleIssue("broken_image", f"{path} cannot be read: {reason}")


def content_issue(content: bytes, name: str, check: ImageCheck) -> SampleIssue | None:
    """Return why the encoded image ``content`` is not usable (``broken_image``), or None.

    Args:
        content: a whole encoded image.
        name: the name of the image in the details.
        check: see :class:`ppocr_ext.data.sample_rules.SampleRules`.
    """
    if not content:
        return SampleIssue("broken_image", f"{name} is empty")
    if check == "header" and looks_whole(content[:_HEAD], content[-_TAIL:], len(content)):
        return None
    if check == "none" or _decodes(content):
        return None
    return SampleIssue(
        "broken_image", f"{name} ({len(content)} bytes) is truncated, or not an image that OpenCV reads"
    )


def looks_whole(head: bytes, tail: bytes, size: int) -> bool:
    """Return whether first and last bytes and size agree with PNG, JPEG, BMP or WebP.

    False means only that these bytes do not settle it: the decoder has to.

    Args:
        head: the first 32 bytes of the file.
        tail: its last 8 bytes.
        size: its length in bytes.
    """
    if head.startswith(_PNG):
        width, height = head[16:20], head[20:24]
        return head[12:16] == b"IHDR" and any(width) and any(height) and tail == _PNG_END
    if head.startswith(_JPEG):
        return tail.endswith(_JPEG_END)
    if head.startswith(b"BM"):
        return int.from_bytes(head[2:6], "little") == size
    is_webp = head.startswith(b"RIFF") and head[8:12] == b"WEBP"
    return is_webp and int.from_bytes(head[4:8], "little") + 8 == size


def _decodes(content: bytes) -> bool:
    import cv2
    import numpy as np

    try:
        return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) is not None
    except cv2.error:  # a size over OpenCV's limit, or an empty image
        return False
