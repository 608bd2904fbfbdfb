"""Compare an engine with its network: what differs by rounding alone, and drawn text; imports no Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from ppocr_ext.config.global_keys import BFLOAT16, FLOAT32

TOLERANCE = 1e-4  # share of the largest absolute value of an output, or of 1 if that is greater
BFLOAT16_TOLERANCE = 0.05  # root mean square of the differences, as a share of that of the output
_NOISES = 4.0  # limit of a difference in units of the noise, which varies from image to image
_MOST = 0.02  # no noise excuses a larger difference of probabilities
# Of an input, relative. Sums of a thousand products in two orders differ by about sqrt(1000) roundings of 2^-24.
_ROUNDING = np.float32(2.0**-19)
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


def margins(probabilities: np.ndarray) -> np.ndarray:
    """Return how much more probable the best class of each frame is than the second one.

    Args:
        probabilities: float32 [..., C], with at least two classes.

    Returns:
        float32 [...].
    """
    best = np.partition(probabilities, -2, axis=-1)
    return np.asarray(best[..., -1] - best[..., -2])


def noise_of(probabilities: Callable[[np.ndarray], np.ndarray], images: Iterable[np.ndarray]) -> float:
    """Return by how much a network differs from itself on this machine: the largest difference of probabilities.

    Each image is computed alone, and in a batch with two copies of it that are rounded in another way. Engines round
    otherwise than the network inside, and differ about as much. They do not take part, so that a wrong engine does not
    raise its own limit.

    Args:
        probabilities: maps float32 [B, 3, H, W] to float32 [B, T, C].
        images: float32 [3, H, W] each.
    """
    generator = np.random.default_rng(0)
    noise = 0.0
    for image in images:
        signs = generator.choice([-1, 1], (2, *image.shape)).astype(np.float32)
        expected = probabilities(image[None])
        found = probabilities(np.stack([image, *(image * (1 + _ROUNDING * signs))]))
        noise = max(noise, distance(np.repeat(expected, len(found), axis=0), found))
    return noise


@dataclass(frozen=True)
class Limits:
    """How far the probabilities of a form of a network may be from the network's own.

    In each frame, one of these is accepted:

    - at most ``tolerance``;
    - at most ``noise``, as the network differs from itself;
    - at most four times the noise, if the best class stays the best: at most half the margin to the second one.

    Attributes:
        tolerance: a difference of probabilities.
        noise: see :func:`noise_of`; above 0.02 it counts as 0.02.
    """

    tolerance: float = TOLERANCE
    noise: float = 0.0

    def accept(self, expected: np.ndarray, found: np.ndarray) -> bool:
        """Return True if the probabilities of a form, float32 [..., C], are near enough to those of the network."""
        if expected.shape != found.shape:
            return False
        harmless = np.minimum(_NOISES * self.noise, margins(expected) / 2)
        rounded = np.minimum(_MOST, np.maximum(self.noise, harmless))
        # A number that is NaN is above every limit.
        return bool((np.abs(expected - found).max(axis=-1) <= np.maximum(self.tolerance, rounded)).all())

    def __str__(self) -> str:
        """Return ``limit 1.0e-04; the network differs from itself by 2.5e-06``."""
        noise = f"; the network differs from itself by {self.noise:.1e}" if self.noise else ""
        return f"limit {max(self.tolerance, min(_MOST, _NOISES * self.noise)):.1e}{noise}"


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
