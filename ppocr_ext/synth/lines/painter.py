"""An image of a line of text, from its text, its font and a style."""

from __future__ import annotations

import cv2
import numpy as np

from ppocr_ext.synth.lines.backgrounds import background, grain, with_ink
from ppocr_ext.synth.lines.fonts import FontFile
from ppocr_ext.synth.lines.shaping import bend, place
from ppocr_ext.synth.lines.style import LineStyle
from ppocr_ext.synth.lines.typeset import set_line
from ppocr_ext.synth.seeded_random import SeededRandom

_LEGIBLE = 13  # pixels: ink of a line that is made smaller keeps at least this height
_BLUR_OF_HEIGHT = 0.035  # the most blur, as a share of the height of the ink


def paint(text: str, font: FontFile, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Draw ``text``: uint8 [height, width, 3], blue-green-red.

    Args:
        text: the font has all its characters.
        font: the font.
        style: ranges of what is drawn by chance.
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
    image = _shrunk(image, bent.shape[0], rng.uniform(style.shrink))
    image = _blurred(image, min(rng.uniform(style.blur), _BLUR_OF_HEIGHT * bent.shape[0]))
    noise = grain(height, width, rng)
    done = cv2.addWeighted(image, 1, noise, rng.uniform(style.noise), 0, dtype=cv2.CV_8U)  # rounds, saturates
    return _compressed(done, round(rng.uniform(style.jpeg)))


def _shrunk(image: np.ndarray, ink_height: int, factor: float) -> np.ndarray:
    """The image made ``factor`` times smaller and enlarged again."""
    factor = min(factor, ink_height / _LEGIBLE)
    if factor <= 1:
        return image
    height, width = image.shape[:2]
    small = (max(1, round(width / factor)), max(1, round(height / factor)))
    return cv2.resize(
        cv2.resize(image, small, interpolation=cv2.INTER_AREA),
        (width, height),
        interpolation=cv2.INTER_LINEAR,
    )


def _blurred(image: np.ndarray, sigma: float) -> np.ndarray:
    return image if sigma < 0.1 else cv2.GaussianBlur(image, (0, 0), sigma)


def _compressed(image: np.ndarray, quality: int) -> np.ndarray:
    """The image as it is after JPEG compression; quality 0 leaves it."""
    if quality == 0:
        return image
    _, content = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(content, cv2.IMREAD_COLOR))
