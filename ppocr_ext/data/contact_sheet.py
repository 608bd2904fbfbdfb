"""Many small images on one sheet, each with its label, to look at; no Paddle."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ppocr_ext.data.captcha import library_fonts

_GAP = 12
_CAPTION = 15  # font size, pixels
_WIDTH = 1000


def contact_sheet(pictures: Sequence[tuple[str, np.ndarray]], font: str | None = None) -> bytes:
    """A PNG of all pictures in rows, with their labels under them.

    Args:
        pictures: label and image (uint8 [h, w, 3], blue-green-red), at least one.
        font: TrueType file for the labels.
    """
    type_face = ImageFont.truetype(font or library_fonts()[0], _CAPTION)
    cell_width = max(image.shape[1] for _, image in pictures) + _GAP
    cell_height = max(image.shape[0] for _, image in pictures) + _GAP + 2 * _CAPTION
    columns = max(1, min(len(pictures), (_WIDTH - _GAP) // cell_width))
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * cell_width + _GAP, rows * cell_height + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (label, image) in enumerate(pictures):
        row, column = divmod(number, columns)
        left, top = _GAP + column * cell_width, _GAP + row * cell_height
        sheet.paste(Image.fromarray(np.ascontiguousarray(image[:, :, ::-1])), (left, top))
        draw.text((left, top + image.shape[0] + 2), label, fill="black", font=type_face)
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    return stream.getvalue()
