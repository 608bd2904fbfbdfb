"""Images of text lines: set with a font, turned and slanted, put on a background, and degraded."""

from __future__ import annotations

import math
import unicodedata
from functools import lru_cache

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ppocr_ext.synth.lines.backgrounds import background, grain, with_ink
from ppocr_ext.synth.lines.fonts import FontFile, load_face
from ppocr_ext.synth.lines.line_style import LineStyle
from ppocr_ext.synth.seeded_random import SeededRandom

_LEGIBLE = 13  # pixels: the ink of a line that is made smaller keeps at least this height
_BLUR_OF_HEIGHT = 0.035  # the most blur, as a share of the height of the ink
_EDGE = 1  # rows and columns at the border of the image that stay free of ink
_RISE = 0.35  # a line rises by at most this share of its height from one end to the other
_ROOM = 2  # times the font size: above the baseline, below it, and half of it before the first character


def paint(text: str, font: FontFile, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Draw ``text``: uint8 [height, width, 3], BGR.

    Args:
        text: the font has all its characters.
        font: the font.
        style: the ranges of the random values.
        rng: the random numbers of this image.
    """
    size = round(rng.uniform(style.font_sizes))
    ink = set_line(text, font, size, rng.uniform(style.spacing) * size)
    bent = bend(ink, style, rng)
    plane = place(bent, style, rng)
    height, width = plane.shape
    back, color = with_ink(background(height, width, style, rng), style, rng)
    share = cv2.merge([plane * np.float32(1 / 255)] * 3)
    image = back + share * (np.array(color, np.float32) - back)
    factor = min(rng.uniform(style.shrink), bent.shape[0] / _LEGIBLE)
    if factor > 1:
        small = (max(1, round(width / factor)), max(1, round(height / factor)))
        smaller = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        image = cv2.resize(smaller, (width, height), interpolation=cv2.INTER_LINEAR)
    sigma = min(rng.uniform(style.blur), _BLUR_OF_HEIGHT * bent.shape[0])
    if sigma >= 0.1:
        image = cv2.GaussianBlur(image, (0, 0), sigma)
    noise = grain(height, width, rng)
    image = cv2.addWeighted(
        image, 1, noise, rng.uniform(style.noise), 0, dtype=cv2.CV_8U
    )  # rounds, saturates
    quality = round(rng.uniform(style.jpeg))
    if quality == 0:
        return image
    _, content = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(content, cv2.IMREAD_COLOR))


def set_line(text: str, font: FontFile, size: int, spacing: float) -> np.ndarray:
    """Draw ``text`` in one row: uint8 [h, w], 255 where there is ink, cut to the ink.

    Letters are placed one by one, without kerning, so nothing depends on a shaping library, which may be
    missing.

    Args:
        text: its characters are all in the font; at least one of them has ink.
        font: the font.
        size: pixels.
        spacing: pixels added after each character.
    """
    face = load_face(font, size)
    clusters: list[str] = []  # characters with the accents over or under them
    for character in text:
        if clusters and unicodedata.combining(character):
            clusters[-1] += character
        else:
            clusters.append(character)
    places, pen = [], 0.0
    for cluster in clusters:
        places.append(round(pen))
        pen += max(_advance(cluster, face) + spacing, 1.0)
    room = _ROOM * size  # glyphs may reach beyond their advance
    image = Image.new("L", (places[-1] + 2 * room, 2 * room))
    draw = ImageDraw.Draw(image)
    for x, cluster in zip(places, clusters, strict=True):
        draw.text((x + room // 2, room), cluster, fill=255, font=face, anchor="ls")
    return np.asarray(image.crop(image.getbbox()))


@lru_cache(maxsize=1 << 15)
def _advance(cluster: str, face: ImageFont.FreeTypeFont) -> float:
    return float(face.getlength(cluster))


def bend(ink: np.ndarray, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Turn, slant and distort ``ink`` (uint8 [h, w]) in one step; no taller than the image allows."""
    height, width = ink.shape
    angle = math.radians(rng.uniform(style.rotation))
    most = math.atan(_RISE * height / width) if width > 2 * height else abs(angle)
    angle = max(-most, min(most, angle))
    slant = math.tan(math.radians(rng.uniform(style.shear)))
    reach = rng.uniform(style.perspective) * height
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float64)
    centered = corners - (width / 2, height / 2)
    centered[:, 0] -= slant * centered[:, 1]
    cos, sin = math.cos(angle), math.sin(angle)
    turned = centered @ np.array([[cos, -sin], [sin, cos]])
    turned += [(rng.uniform((-reach, reach)), rng.uniform((-reach, reach))) for _ in corners]
    turned -= turned.min(axis=0)
    turned *= min(1.0, (style.height - 2 * _EDGE) / turned[:, 1].max())
    columns, rows = np.ceil(turned.max(axis=0) - 1e-6).astype(int)  # a rounding error is no pixel
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), turned.astype(np.float32))
    return cv2.warpPerspective(ink, matrix, (max(1, int(columns)), max(1, int(rows))), flags=cv2.INTER_LINEAR)


def place(ink: np.ndarray, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Put ``ink`` at a random place of an image of the style's height (and width), with margins."""
    before, after = (max(_EDGE, round(rng.uniform(style.margin) * style.height)) for _ in range(2))
    across, down = rng.random(), (rng.random() + rng.random()) / 2  # likelier in the middle
    if style.width is not None:
        room = max(1, style.width - before - after)
        if ink.shape[1] > room:
            ink = cv2.resize(ink, (room, ink.shape[0]), interpolation=cv2.INTER_AREA)
        before += round((room - ink.shape[1]) * across)
    rows, columns = ink.shape
    plane = np.zeros((style.height, style.width or columns + before + after), np.uint8)
    top = _EDGE + round((style.height - 2 * _EDGE - rows) * down)
    plane[top : top + rows, before : before + columns] = ink
    return plane
