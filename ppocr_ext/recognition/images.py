"""Decode an image from a file, from bytes or from an array, as PaddleOCR's ``DecodeImage`` does; imports no Paddle."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.io.image_pixels import PixelLimitError, decode_image, most_image_bytes
from ppocr_ext.limits import MAX_IMAGE_PIXELS, read_at_most

# the path of a file, the bytes of an encoded image, or pixels: uint8 or uint16 [H, W] or [H, W, 1 | 3 | 4], BGR
ImageSource = str | PathLike[str] | bytes | bytearray | memoryview | np.ndarray
_TYPES = "the path of a file, the bytes of an encoded image, or a NumPy array [H, W] or [H, W, 3]"


def is_image(source: Any) -> TypeGuard[ImageSource]:
    """Return True if ``source`` is one image in a form that :func:`read_image` takes."""
    return isinstance(source, str | PathLike | bytes | bytearray | memoryview | np.ndarray)


def read_image(source: ImageSource) -> np.ndarray:
    """Return the pixels of an image: uint8 [H, W, 3], BGR.

    A file and bytes are decoded as ``cv2.imdecode(…, IMREAD_COLOR)`` does, so as in training: transparency is
    ignored, 16 bit become 8, and a photo is turned by its EXIF orientation. An array with the pixels of a file
    gives the same.

    Args:
        source: see ``ImageSource``.

    Raises:
        DataError: there is no such file, it is not an image or has more than ``MAX_IMAGE_PIXELS`` pixels, or the array
            has another type or shape.
    """
    if isinstance(source, np.ndarray):
        return _of_array(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(bytes(source), "the image")
    if not isinstance(source, str | PathLike):
        raise DataError(
            f"an image cannot be a {type(source).__name__}. Fix: give {_TYPES}.", code="bad_value"
        )
    path = Path(fspath(source))
    try:
        content = read_at_most(path, most_image_bytes(MAX_IMAGE_PIXELS))
    except FileNotFoundError:
        raise DataError(f"there is no file {path}", code="missing_image") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}", code="broken_image") from error
    return _decode(content, str(path))


def _decode(content: bytes, name: str) -> np.ndarray:
    try:
        return np.asarray(decode_image(content))
    except PixelLimitError as error:
        fix = "Fix: cut the text line out of it, or give its pixels as an array."
        raise DataError(f"{name} ({len(content):,} bytes) {error}. {fix}", code="too_many_pixels") from error
    except ValueError as error:
        raise DataError(f"{name} ({len(content):,} bytes) {error}", code="broken_image") from error


def _of_array(pixels: np.ndarray) -> np.ndarray:
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise DataError(
            f"an image cannot be an array of {pixels.dtype} {list(pixels.shape)}. Fix: give uint8 or uint16 [H, W], "
            f"[H, W, 3] (BGR, as cv2.imread returns it) or [H, W, 4].",
            code="bad_value",
        )
    if not pixels.size:
        raise DataError(f"the image has no pixels (an array {list(pixels.shape)})", code="broken_image")
    if pixels.dtype == np.uint16:
        pixels = (pixels >> 8).astype(np.uint8)  # as OpenCV decodes a file of 16 bit
    if channels == 1:
        return np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(pixels[:, :, :3])
