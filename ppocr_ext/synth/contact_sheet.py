"""Many small images on one sheet, each with its label, to look at; no Paddle."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

_GAP = 12
_CAPTION = 15  # font size, pixels
_WIDTH = 1000


class Picture(NamedTuple):
    """An image (uint8 [h, w, 3], blue-green-red), its label, and the font to write the label with.

    A font is a file and the number of the font in it.
    """

    label: str
    image: np.ndarray
    font: tuple[str, int]


class _Cell(NamedTuple):
    image: Image.Image
    label: str
    font: ImageFont.FreeTypeFont
    width: int
    height: int


def contact_sheet(pictures: Sequence[Picture]) -> bytes:
    """A PNG of all pictures in rows, with their labels under them.

    An image that is wider than the sheet is shown smaller.

    Args:
        pictures: at least one.
    """
    rows = _rows([_cell(picture) for picture in pictures])
    width = max(sum(cell.width for cell in row) for row in rows) + _GAP
    height = sum(max(cell.height for cell in row) for row in rows) + _GAP
    sheet = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    top = _GAP
    for row in rows:
        left = _GAP
        for cell in row:
            sheet.paste(cell.image, (left, top))
            draw.text((left, top + cell.image.height + 2), cell.label, fill="black", font=cell.font)
            left += cell.width
        top += max(cell.height for cell in row)
    stream = io.BytesIO()
    sheet.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _cell(picture: Picture) -> _Cell:
    image = Image.fromarray(np.ascontiguousarray(picture.image[:, :, ::-1]))
    room = _WIDTH - 2 * _GAP
    if image.width > room:
        image = image.resize((room, max(1, round(image.height * room / image.width))))
    path, index = picture.font
    font = ImageFont.truetype(path, _CAPTION, index=index)
    width = max(image.width, min(room, int(font.getlength(picture.label)) + 1))
    return _Cell(image, picture.label, font, width + _GAP, image.height + _GAP + 2 * _CAPTION)


def _rows(cells: list[_Cell]) -> list[list[_Cell]]:
    rows: list[list[_Cell]] = [[]]
    used = 0
    for cell in cells:
        if rows[-1] and used + cell.width > _WIDTH - _GAP:
            rows.append([])
            used = 0
        rows[-1].append(cell)
        used += cell.width
    return rows
