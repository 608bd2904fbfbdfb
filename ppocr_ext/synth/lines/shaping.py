"""A set line turned, slanted and seen from the side, then placed in its image."""

from __future__ import annotations

import math

import cv2
import numpy as np

from ppocr_ext.synth.lines.style import LineStyle
from ppocr_ext.synth.seeded_random import SeededRandom

_EDGE = 1  # rows and columns at the border of the image that stay free of ink
_RISE = 0.35  # a line rises by at most this share of its height from one end to the other


def bend(ink: np.ndarray, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Turn, slant and distort ``ink`` (uint8 [h, w]) in one step; no taller than the image allows."""
    height, width = ink.shape
    angle = math.radians(rng.uniform(style.rotation))
    most = math.atan(_RISE * height / width) if width > 2 * height else abs(angle)
    angle = max(-most, min(most, angle))
    slant = math.tan(math.radians(rng.uniform(style.shear)))
    reach = rng.uniform(style.perspective) * height
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float64)
    centred = corners - (width / 2, height / 2)
    centred[:, 0] -= slant * centred[:, 1]
    cos, sin = math.cos(angle), math.sin(angle)
    turned = centred @ np.array([[cos, -sin], [sin, cos]])
    turned += [(rng.uniform((-reach, reach)), rng.uniform((-reach, reach))) for _ in corners]
    turned -= turned.min(axis=0)
    turned *= min(1.0, (style.height - 2 * _EDGE) / turned[:, 1].max())
    columns, rows = np.ceil(turned.max(axis=0) - 1e-6).astype(int)  # a rounding error is no pixel
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), turned.astype(np.float32))
    return cv2.warpPerspective(ink, matrix, (max(1, int(columns)), max(1, int(rows))), flags=cv2.INTER_LINEAR)


def place(ink: np.ndarray, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Put ``ink`` somewhere into an image of the height (and width) of the style, with margins."""
    before, behind = (max(_EDGE, round(rng.uniform(style.margin) * style.height)) for _ in range(2))
    where_across, where_down = rng.random(), (rng.random() + rng.random()) / 2  # likelier in the middle
    if style.width is not None:
        room = max(1, style.width - before - behind)
        if ink.shape[1] > room:
            ink = cv2.resize(ink, (room, ink.shape[0]), interpolation=cv2.INTER_AREA)
        before += round((room - ink.shape[1]) * where_across)
    rows, columns = ink.shape
    plane = np.zeros((style.height, style.width or columns + before + behind), np.uint8)
    top = _EDGE + round((style.height - 2 * _EDGE - rows) * where_down)
    plane[top : top + rows, before : before + columns] = ink
    return plane
