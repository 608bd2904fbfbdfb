"""A sheet of small images with their captions, to look at; no Paddle."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

_GAP = 12  # pixels, as all numbers here
_CAPTION = 15  # font size of captions
_LINE = 18  # distance of captions
_WIDTH = 1000  # limit for the sheet
Font = tuple[str, int]  # a file, and the font's number in it


@dataclass(frozen=True)
class Caption:
    """A line of text under an image.

    Attributes:
        text: the text.
        font: the font of the text; None for that of Pillow, which draws Latin letters.
        color: the name of the color in Pillow.
    """

    text: str
    font: Font | None
    color: str = "black"


@dataclass(frozen=True)
class Picture:
    """An image (uint8 [h, w, 3], BGR) and the captions under it, at least one."""

    image: np.ndarray
    captions: tuple[Caption, ...]


def contact_sheet(pictures: Sequence[Picture]) -> bytes:
    """Return a PNG of all pictures in rows, with their captions under them.

    An image that is wider than the sheet is scaled down.

    Args:
        pictures: at least one.
    """
    cells = []
    room = _WIDTH - 2 * _GAP
    left = _GAP
    top = _GAP
    row_height = 0
    sheet_width = 0
    for picture in pictures:
        image = Image.fromarray(np.ascontiguousarray(picture.image[:, :, ::-1]))
        if image.width > room:
            image = image.resize((room, max(1, round(image.height * room / image.width))))
        lines = [(caption, _load(caption.font)) for caption in picture.captions]
        longest = max(int(font.getlength(caption.text)) + 1 for caption, font in lines)
        width = max(image.width, min(room, longest)) + _GAP
        if left > _GAP and left + width > _WIDTH:
            top += row_height
            left = _GAP
            row_height = 0
        cells.append((left, top, image, lines))
        left += width
        sheet_width = max(sheet_width, left)
        row_height = max(row_height, image.height + _GAP + 2 * _CAPTION + (len(lines) - 1) * _LINE)
    sheet = Image.new("RGB", (sheet_width, top + row_height), "white")
    draw = ImageDraw.Draw(sheet)
    for left, top, image, lines in cells:
        sheet.paste(image, (left, top))
        for number, (caption, font) in enumerate(lines):
            place = (left, top + image.height + 2 + number * _LINE)
            draw.text(place, caption.text, fill=caption.color, font=font)
    stream = io.BytesIO()
    origin = PngInfo()
    origin.add_text("Software", "ppocr-ext")  # `check_writable` knows it again
    sheet.save(stream, "PNG", optimize=True, pnginfo=origin)
    return stream.getvalue()


def _load(font: Font | None) -> ImageFont.FreeTypeFont:
    if font is None:
        return ImageFont.load_default(_CAPTION)
    return ImageFont.truetype(font[0], _CAPTION, index=font[1])
