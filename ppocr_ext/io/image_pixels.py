"""Read the size of an image before decoding it, and decode only images within a limit of pixels; no Paddle.

A PNG of half a megabyte may claim 32,000 × 32,000 pixels, which take three gigabytes.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ppocr_ext.limits import MAX_IMAGE_PIXELS, MAX_IMAGE_SCANS

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
_SEGMENTS = 10_000  # limit of the segments of a JPEG before its pixels
_BLOCK = 1024  # bytes that are read at a time
_NO_LENGTH = {0x01, *range(0xD0, 0xD9)}  # JPEG markers without a length and content
_SIZES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # JPEG markers that start a frame, with its size
_SEQUENTIAL = {0xC0, 0xC1, 0xC9}  # markers of frames that have only one scan if it has all components
_ENDS = {0xD9, 0xDA}  # end of the image, and start of its pixels
_SCAN = 0xDA
_SCAN_START = b"\xff\xda"  # compressed pixels never have these two bytes
_ORIENTATION = 0x0112  # of EXIF; from 5 on, width and height change places
_segment = struct.Struct(">BBH").unpack_from  # 0xFF, marker, length
_two_numbers = struct.Struct(">II").unpack_from
Read = Callable[[int, int], bytes]  # (offset, bytes) → content; shorter at the end of the file


TALL = 1.5  # height to width from which PaddleOCR's and RapidOCR's clients turn an image before they read it


def is_tall(height: float, width: float) -> bool:
    """Return whether clients turn an image of this size."""
    return height >= TALL * width


class PixelLimitError(ValueError):
    """An image has more pixels, or bytes, than the limit; the message begins with a verb."""


def most_image_bytes(pixels: int) -> int:
    """Return the largest size in bytes of an image file: four channels of 16 bits without compression."""
    return 8 * pixels + (1 << 20)


def check_size(read: Read, length: int, limit: int = MAX_IMAGE_PIXELS, head: bytes | None = None) -> None:
    """Refuse an encoded image that must not be decoded.

    Args:
        read: returns a part of the image's content.
        length: size of the content in bytes.
        limit: limit of pixels.
        head: the first bytes, if they are known.

    Raises:
        PixelLimitError: the image has more pixels.
        ValueError: the size cannot be read; the message begins with a verb.
    """
    if length > most_image_bytes(limit):
        raise PixelLimitError(f"has {length:,} bytes, too many for {limit:,} pixels, the limit")
    if (size := _claimed_size(read, length, read(0, _BLOCK) if head is None else head)) is None:
        raise ValueError("is truncated, or not an image that OpenCV reads")
    width, height = size
    if width * height > limit:
        raise PixelLimitError(f"has {width * height:,} pixels ({width} × {height}), the limit is {limit:,}")


def decode_image(content: bytes, limit: int = MAX_IMAGE_PIXELS) -> Any:
    """Return the pixels of an encoded image: uint8 [H, W, 3], BGR.

    Raises:
        PixelLimitError: it has more than ``limit`` pixels.
        ValueError: OpenCV does not read it; the message begins with a verb.
    """
    import cv2
    import numpy as np

    if not content:
        raise ValueError("is empty")
    check_size(lambda at, size: content[at : at + size], len(content), limit)
    try:
        pixels = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:  # an empty image
        pixels = None
    if pixels is None:
        raise ValueError("is truncated, or not an image that OpenCV reads")
    return pixels


def _claimed_size(read: Read, length: int, head: bytes) -> tuple[int, int] | None:
    """Return width and height as an encoded image states them; None if they cannot be read."""
    try:
        if head.startswith(PNG):
            return _two_numbers(head, 16)
        if head.startswith(JPEG):
            return _jpeg_size(read, length, head)
        if head.startswith(b"BM"):
            old = head[14:18] == b"\x0c\0\0\0"  # the header of OS/2
            width, height = struct.unpack("<HH" if old else "<ii", head[18 : 22 if old else 26])
            return abs(width), abs(height)
    except struct.error:
        return None
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_size(head)
    return shown_size(io.BytesIO(read(0, length)))


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = (int.from_bytes(head[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    return (width, height) if kind == b"VP8 " else None


def _jpeg_size(read: Read, length: int, block: bytes) -> tuple[int, int] | None:
    """Return the size in the first frame of a JPEG, which decoders use too; ``block`` is the first bytes of the image.

    Raises:
        ValueError: it has more scans than the limit. Each scan takes decoders time for all pixels.
    """
    frame = None
    components = 0  # number of components, if one scan may have all of them
    for marker, segment in _jpeg_segments(read, block):
        if marker in _SIZES and frame is None:
            height, width, count = struct.unpack_from(">xHHB", segment, 4)
            frame = (width, height)
            components = count if marker in _SEQUENTIAL else 0
        elif marker in _ENDS:
            if marker == _SCAN and segment[4] == components:
                return frame
            break
    content = read(0, length)
    scans = content.count(_SCAN_START)
    if scans > MAX_IMAGE_SCANS:
        raise ValueError(f"has {scans:,} scans, the limit is {MAX_IMAGE_SCANS}")
    if len(content) < length:
        raise ValueError("has scans that are not read")
    return frame


def _jpeg_segments(read: Read, block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (marker, first bytes) of each segment of a JPEG that starts a frame, starts its pixels or ends the image.

    Args:
        read: returns a part of the image's content.
        block: the first bytes of the image.
    """
    at = 2
    start = 0
    last = len(block) - 10
    for _ in range(_SEGMENTS):
        if at > last:
            start = at
            block = read(at, _BLOCK)
            last = start + len(block) - 10
            if len(block) < 10:
                return
        first, marker, length = _segment(block, at - start)
        if first != 0xFF or marker == 0xFF:  # decoders skip bytes between segments
            chunk = read(at, 1 << 16)
            skipped = chunk.find(b"\xff", 1) if first != 0xFF else len(chunk) - len(chunk.lstrip(b"\xff")) - 1
            at += len(chunk) if skipped < 0 else skipped
            continue
        if marker in _SIZES or marker in _ENDS:
            yield marker, block[at - start : at - start + 10]
        at += 2 if marker in _NO_LENGTH else 2 + (length if length > 2 else 2)


def shown_size(image_file: str | Path | BinaryIO) -> tuple[int, int] | None:
    """Return width and height in the header of an image, as OpenCV turns it: TIFF, GIF, JPEG 2000, PNM, …"""
    from PIL import Image

    try:
        with Image.open(image_file) as image:
            return image.size[::-1] if image.getexif().get(_ORIENTATION, 1) > 4 else image.size
    except Exception:  # Pillow raises any kind of error for a damaged file
        return None
