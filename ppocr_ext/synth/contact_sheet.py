"""A sheet of small images with their labels, to look at; no Paddle."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

_GAP = 12
_CAPTION = 15  # font size, pixels
_WIDTH = 1000
# label, image (uint8 [h, w, 3], BGR), and the font of the label: a file and the font's number in it
Picture = tuple[str, np.ndarray, tuple[str, int]]


def contact_sheet(pictures: Sequence[Picture]) -> bytes:
    """Return a PNG of all pictures in rows, with their labels under them.

    An image that is wider than the sheet is shown smaller.

    Args:
        pictures: at least one.
    """
    cells, room = [], _WIDTH - 2 * _GAP
    left, top, row_height, sheet_width = _GAP, _GAP, 0, 0
    for label, array, (path, index) in pictures:
        image = Image.fromarray(np.ascontiguousarray(array[:, :, ::-1]))
        if image.width > room:
            image = image.resize((room, max(1, round(image.height * room / image.width))))
        font = ImageFont.truetype(path, _CAPTION, index=index)
        width = max(image.width, min(room, int(font.getlength(label)) + 1)) + _GAP
        if left > _GAP and left + width > _WIDTH:
            left, top, row_height = _GAP, top + row_height, 0
        cells.append((left, top, image, label, font))
        left += width
        sheet_width = max(sheet_width, left)
        row_height = max(row_height, image.height + _GAP + 2 * _CAPTION)
    sheet = Image.new("RGB", (sheet_width, top + row_height), "white")
    draw = ImageDraw.Draw(sheet)
    for left, top, image, label, font in cells:
        sheet.paste(image, (left, top))
        draw.text((left, top + image.height + 2), label, fill="black", font=font)
    stream = io.BytesIO()
    sheet.save(stream, "PNG", optimize=True)
    return stream.getvalue()
