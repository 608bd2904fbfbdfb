"""Find images in which nothing can be read, in a sample of the data; imports no Paddle.

Such images are usable for PaddleOCR, and teach a network to answer nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from ppocr_ext.data.sample_rules import SampleIssue
from ppocr_ext.io.image_pixels import decode_image
from ppocr_ext.limits import MAX_IMAGE_PIXELS

T = TypeVar("T")
Read = Callable[[], bytes]

LOOKED_AT = 200  # images of a section, at most
_LEAST_SIDE = 5  # pixels; no character can be read in fewer
_LEAST_CONTRAST = 12  # of 255 between the darkest and the lightest pixel
_TALL = (
    1.5  # height to width; PaddleOCR turns such images before it reads them, but not before it trains on them
)

UNSEEN_FIXES: dict[str, str] = {  # reason -> what to do about it
    "flat_image": "Look at these images: convert them to 8 bits, with the text on a background of another brightness.",
    "tiny_image": "Remove them, or cut the text lines out again.",
    "tall_image": "Turn vertical text by 90° before the training, or remove it.",
}


class SpreadSample(Generic[T]):
    """Keep at most ``most`` items of a sequence of unknown length, evenly spread over it.

    Args:
        most: an even number of items.
    """

    def __init__(self, most: int = LOOKED_AT) -> None:
        self.items: list[T] = []
        self._most = most
        self._every = 1
        self._seen = 0

    def add(self, items: Sequence[T]) -> None:
        """Take the next items of the sequence."""
        at = -self._seen % self._every
        while at < len(items):
            self.items.append(items[at])
            if len(self.items) > self._most:  # an odd number, so that the last one stays
                self.items = self.items[::2]
                self._every *= 2
            at += self._every
        self._seen += len(items)


def visibility_issue(content: bytes, label: str, max_pixels: int = MAX_IMAGE_PIXELS) -> SampleIssue | None:
    """Return why nothing can be read in an encoded image (a key of ``UNSEEN_FIXES``), or None.

    An image that cannot be decoded gives None: preflight names it if it is looked at there.
    """
    try:
        pixels = decode_image(content, max_pixels)
    except ValueError:
        return None
    height, width = pixels.shape[:2]
    size = f"{width}×{height} pixels"
    if min(height, width) < _LEAST_SIDE:
        return SampleIssue("tiny_image", size)
    if len(label) > 2 and height >= _TALL * width:
        return SampleIssue("tall_image", f"{size} for {len(label)} characters")
    contrast = int(pixels.max()) - int(pixels.min())
    if contrast < _LEAST_CONTRAST:
        return SampleIssue("flat_image", f"{_why_flat(content)}, a contrast of {contrast} of 255")
    return None


def _why_flat(content: bytes) -> str:
    """Say where the text may be, which PaddleOCR does not see: it reads 8 bits of three channels."""
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
