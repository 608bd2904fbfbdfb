"""Whether a file, or bytes, are an image that OpenCV (with which PaddleOCR reads) can decode; imports no Paddle."""

from __future__ import annotations

import os
from pathlib import Path
from posixpath import join  # on strings: a Path a line costs more than the check
from typing import Literal

from ppocr_ext.data.label_file import quotes_hint

ImageCheck = Literal["header", "decode"]
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB\x60\x82"
_JPEG = b"\xff\xd8\xff"
_JPEG_END = b"\xff\xd9"
_HEAD, _TAIL = 32, 8


def looks_whole(head: bytes, tail: bytes, size: int) -> bool:
    """True for a PNG, JPEG, BMP or WebP whose first and last bytes and size agree with its format.

    False means only that this cannot be told from so little: the decoder has to say.

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
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return int.from_bytes(head[4:8], "little") + 8 == size
    return False


def image_fault(path: str, check: ImageCheck) -> tuple[str, str] | None:
    """Why ``path`` cannot be used as an image: ``(reason, detail)``; None where it can.

    Args:
        path: the file.
        check: ``"header"`` reads 40 bytes and asks the decoder only where these do not settle it;
            ``"decode"`` decodes every image.

    Returns:
        ``("missing_image", …)``, ``("broken_image", …)`` or None.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return "missing_image", f"there is no file {path}"
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        return "broken_image", f"{path} cannot be opened: {getattr(error, 'strerror', None) or error}"
    try:
        size = os.fstat(handle).st_size
        if size == 0:
            return "broken_image", f"{path} is empty"
        head = os.pread(handle, _HEAD, 0)
        whole = check == "header" and looks_whole(head, os.pread(handle, _TAIL, max(0, size - _TAIL)), size)
        content = None if whole else _read_all(handle, size)
    except OSError as error:
        return "broken_image", f"{path} cannot be read: {error.strerror or error}"
    finally:
        os.close(handle)
    if content is None or _decodes(content):
        return None
    return "broken_image", f"{path} ({size} bytes) is truncated, or no image that OpenCV reads"


def missing_image(data_dir: str, name: str) -> tuple[str, str]:
    """Return ``("missing_image", detail)`` for an image that is not there.

    The detail says what is wrong with the way that the path is written, if that can be told.

    Args:
        data_dir: folder that ``name`` starts from.
        name: the path as it stands in the label file.
    """
    said = f"there is no file {join(data_dir, name)}{quotes_hint(name)}"
    turned = name.replace("\\", "/")
    inside = not turned.startswith("/") and ".." not in turned.split("/")
    if turned != name and inside and Path(data_dir, turned).is_file():
        said += f", but there is {join(data_dir, turned)}: write `/` in place of `\\`"
    return "missing_image", said


def content_fault(content: bytes, name: str, check: ImageCheck) -> tuple[str, str] | None:
    """Why ``content`` cannot be used as an image: ``("broken_image", detail)``; None where it can.

    Args:
        content: a whole encoded image.
        name: how the detail calls it.
        check: see :func:`image_fault`.
    """
    if not content:
        return "broken_image", f"{name} is empty"
    if check == "header" and looks_whole(content[:_HEAD], content[-_TAIL:], len(content)):
        return None
    if _decodes(content):
        return None
    return "broken_image", f"{name} ({len(content)} bytes) is truncated, or no image that OpenCV reads"


def _read_all(handle: int, size: int) -> bytes:
    content = bytearray()
    while part := os.pread(handle, max(1, size - len(content)), len(content)):
        content += part
    return bytes(content)


def _decodes(content: bytes) -> bool:
    import cv2
    import numpy as np

    try:
        return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) is not None
    except cv2.error:  # a size over OpenCV's limit, or an empty image
        return False
