"""A text set in a font: the share of ink in each pixel, straight and without margins."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ppocr_ext.synth.lines.fonts import FontFile

_ROOM = 2  # times the font size: above the baseline, below it, and half of it before the first character


def set_line(text: str, font: FontFile, size: int, spacing: float) -> np.ndarray:
    """Draw ``text`` in one row: uint8 [h, w], 255 where there is ink, cut to the ink.

    Letters are placed one by one, without kerning; nothing depends on a shaping library, which may be there
    or not.

    Args:
        text: its characters are all in the font; at least one of them has ink.
        font: the font.
        size: pixels.
        spacing: pixels added behind each character.
    """
    face = _face(font.path, font.index, size)
    clusters = _clusters(text)
    places = _places(clusters, face, spacing)
    room = _ROOM * size  # glyphs may reach beyond the place that they take
    image = Image.new("L", (places[-1] + 2 * room, 2 * room))
    draw = ImageDraw.Draw(image)
    for place, cluster in zip(places, clusters, strict=True):
        draw.text((place + room // 2, room), cluster, fill=255, font=face, anchor="ls")
    return np.asarray(image.crop(image.getbbox()))


def _clusters(text: str) -> list[str]:
    """Characters with the accents that stand over or under them."""
    clusters: list[str] = []
    for character in text:
        if clusters and unicodedata.combining(character):
            clusters[-1] += character
        else:
            clusters.append(character)
    return clusters


def _places(clusters: list[str], face: ImageFont.FreeTypeFont, spacing: float) -> list[int]:
    """Where each cluster begins, pixels."""
    places, pen = [], 0.0
    for cluster in clusters:
        places.append(round(pen))
        pen += max(_advance(cluster, face) + spacing, 1.0)
    return places


@lru_cache(maxsize=1 << 15)
def _advance(cluster: str, face: ImageFont.FreeTypeFont) -> float:
    """How far the pen goes over a cluster, pixels."""
    return float(face.getlength(cluster))


@lru_cache(maxsize=512)
def _face(path: str, index: int, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size, index=index, layout_engine=ImageFont.Layout.BASIC)
