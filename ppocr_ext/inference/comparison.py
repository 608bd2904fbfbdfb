"""Compare an engine with its network on drawn text of several widths; imports no Paddle."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from ppocr_ext.config.global_keys import BFLOAT16, FLOAT32

TOLERANCE = 1e-4  # share of the largest absolute value of an output, or of 1 if that is greater
BFLOAT16_TOLERANCE = 0.05  # root mean square of the differences, as a share of that of the output
_LEAST = 1e-12  # smaller probabilities are clipped: the softmax of oneDNN returns none below exp(-64)
_LETTERS = (1, 4, 9, 16)  # number of letters in each drawn image, from a narrow to a wide one
_DRAWN = "0123456789"


def distance(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference of two arrays; infinite if the shapes differ or a number is NaN."""
    if expected.shape != found.shape:
        return float("inf")
    largest = float(np.abs(expected - found).max())
    return largest if largest == largest else float("inf")


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    """Return the logarithms of probabilities, which equal the logits up to one number in each row.

    Logits show differences better: if a network is certain, different logits have almost the same probabilities.
    """
    return np.log(np.maximum(probabilities, _LEAST))


def is_near(expected: np.ndarray, found: np.ndarray, dtype: str = FLOAT32) -> bool:
    """Return True if an output of a network, such as its logits, is exact enough for ``dtype``."""
    if expected.shape == found.shape and dtype == BFLOAT16:
        return float(np.linalg.norm(found - expected)) <= BFLOAT16_TOLERANCE * float(np.linalg.norm(expected))
    return distance(expected, found) <= TOLERANCE * max(1.0, float(np.abs(expected).max()))


def drawn_images(characters: Sequence[str], height: int) -> list[np.ndarray]:
    """Return coloured images with letters of a dictionary, from narrow to wide; always the same images.

    Args:
        characters: the characters of the dictionary; if it has no Latin letter or digit, digits are drawn.
        height: the height of the network's input. The images have other heights, so that they must be resized.

    Returns:
        uint8 [H, W, 3] each, in BGR.
    """
    drawable = [c for c in characters if len(c) == 1 and c.isascii() and c.isalnum()] or list(_DRAWN)
    generator = np.random.default_rng(0)
    images = []
    for number, letters in enumerate(_LETTERS):
        text = "".join(generator.choice(drawable, letters))
        images.append(_draw(text, height + 7 * number + 5, generator))
    return images


def _draw(text: str, height: int, generator: np.random.Generator) -> np.ndarray:
    """Return an image of ``text`` in one colour on a background that changes from left to right."""
    font, scale = cv2.FONT_HERSHEY_SIMPLEX, height / 40
    (width, _), _ = cv2.getTextSize(text, font, scale, 2)
    left, right, ink = generator.integers([[150], [90], [0]], [[256], [256], [80]], (3, 3))
    share = np.linspace(0, 1, width + height // 2)[:, None]
    row = left * (1 - share) + right * share
    image = np.repeat(row[None], height, axis=0).astype(np.uint8)
    cv2.putText(image, text, (height // 4, int(height * 0.72)), font, scale, ink.tolist(), 2, cv2.LINE_AA)
    return image


def text_inputs(shape: tuple[int, ...]) -> np.ndarray:
    """Return drawn text as input of a network: float32 of ``shape`` [B, C, H, W], from -1 to 1."""
    count, channels, height, width = shape
    drawn = drawn_images(_DRAWN, height)
    resized = [cv2.resize(drawn[-1 - number % len(drawn)], (width, height)) for number in range(count)]
    planes = np.stack([np.resize(image.transpose(2, 0, 1), (channels, height, width)) for image in resized])
    return (planes / np.float32(255) - np.float32(0.5)) / np.float32(0.5)
