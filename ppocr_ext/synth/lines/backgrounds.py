"""The background of a line, and an ink that contrasts with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np

from ppocr_ext.errors import DataError
from ppocr_ext.synth.lines.line_style import LineStyle
from ppocr_ext.synth.seeded_random import SeededRandom

Color = tuple[float, float, float]  # blue, green, red: levels from 0 to 255
_WEIGHTS = (0.114, 0.587, 0.299)  # of blue, green, red in brightness (ITU-R BT.601)
_PALE, _COLORFUL = 4, 2  # paper and walls are mostly pale, ink less so
_DIM = 0.15  # share of lines whose ink is on the side with less contrast, if both sides have enough
_ROWS, _COLUMNS = 128, 1024  # pixels of the noise that textures and grain are cut from
_PHOTO_SIDE = 2048  # pixels; a larger photo is made smaller


def background(height: int, width: int, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Draw one of the style's backgrounds: float32 [height, width, 3], about 0 to 255."""
    kind = rng.choice(style.backgrounds)
    if kind == "photo":
        return _photo_crop(style.photos, height, width, rng)
    bright = rng.random() >= style.inverted
    level = rng.uniform((140, 250)) if bright else rng.uniform((10, 115))
    color = _tinted(level, rng, _PALE)
    plane = np.empty((height, width, 3), np.float32)
    plane[:] = color
    if kind == "gradient":
        end = _tinted(level + rng.uniform((-45, 45)), rng, _PALE)
        ramp = _ramp(height, width, rng)
        return plane + cv2.merge([ramp * (last - first) for first, last in zip(color, end, strict=True)])
    if kind == "texture":
        texture = _texture(height, width, rng)
        return plane + cv2.merge([texture] * 3)
    return plane


def with_ink(back: np.ndarray, style: LineStyle, rng: SeededRandom) -> tuple[np.ndarray, Color]:
    """Return a background and an ink whose brightness differs as much as the style asks.

    The contrast of a background that has both dark and bright parts is reduced first.

    Args:
        back: float32 [h, w, 3].
        style: for its ``contrast``.
        rng: chooses the ink.
    """
    least, most = style.contrast
    darkest, brightest = _extremes(back)
    if max(darkest, 255 - brightest) < least:  # no ink fits: less contrast, moved towards black or white
        spread = min(brightest - darkest, 0.6 * (255 - least))
        low = 255 - spread if darkest + brightest >= 255 else 0.0
        scale = spread / max(brightest - darkest, 1e-6)
        back = np.clip((back - darkest) * scale + low, 0, 255)
        darkest, brightest = _extremes(back)
    bright = 255 - brightest > darkest
    if rng.random() < _DIM and min(darkest, 255 - brightest) >= least:
        bright = not bright
    room = 255 - brightest if bright else darkest
    reach = (least, max(least, min(most, room)))
    difference = max(rng.uniform(reach), rng.uniform(reach))  # most text is easy to see
    level = brightest + difference if bright else darkest - difference
    return back, _tinted(level, rng, _COLORFUL)


def grain(height: int, width: int, rng: SeededRandom) -> np.ndarray:
    """Return normal noise, different in each channel: float32 [height, width, 3], mean 0, standard deviation 1."""
    tile = _noise_tile()
    top, left = rng.randbelow(_ROWS), rng.randbelow(_COLUMNS)
    if height <= _ROWS and width <= _COLUMNS:  # a view, five times as fast as an index
        return tile[top : top + height, left : left + width]
    rows, columns = np.arange(top, top + height) % _ROWS, np.arange(left, left + width) % _COLUMNS
    return tile[rows[:, None], columns]


@lru_cache(maxsize=1)
def _noise_tile() -> np.ndarray:
    # RandomState's numbers are the same in all versions of NumPy; those of a Generator may change.
    tile = np.random.RandomState(20).standard_normal((_ROWS, _COLUMNS, 3)).astype(np.float32)
    return np.tile(tile, (2, 2, 1))


def _tinted(level: float, rng: SeededRandom, paleness: int) -> Color:
    """Return a color of the brightness ``level`` (0 to 255); strong colors are rarer with more ``paleness``."""
    level = min(255.0, max(0.0, level))
    strength = rng.random() ** paleness
    hue = (rng.random() * 255, rng.random() * 255, rng.random() * 255)
    own = sum(weight * channel for weight, channel in zip(_WEIGHTS, hue, strict=True))
    shift = [(channel - own) * strength for channel in hue]
    # as far as no channel leaves its range: clipping would change the brightness
    room = min(((255 - level) if s > 0 else level) / max(abs(s), 1e-6) for s in shift)
    blue, green, red = (level + s * min(1.0, room) for s in shift)
    return blue, green, red


def _extremes(back: np.ndarray) -> tuple[float, float]:
    """Return the brightness of the darkest and the brightest part, over areas of some pixels."""
    height, width = back.shape[:2]
    small = cv2.resize(back, (max(1, width // 8), max(1, height // 8)), interpolation=cv2.INTER_AREA)
    levels = small.reshape(-1, 3) @ np.array(_WEIGHTS, np.float32)
    return float(levels.min()), float(levels.max())


def _ramp(height: int, width: int, rng: SeededRandom) -> np.ndarray:
    """Return a plane that rises from 0 to 1 in a random direction: float32 [height, width]."""
    across, down = rng.uniform((-1, 1)), rng.uniform((-1, 1))
    row = np.linspace(0, across, width, dtype=np.float32)
    plane = row + np.linspace(0, down, height, dtype=np.float32)[:, None]
    low, high = float(plane.min()), float(plane.max())
    return (plane - low) / max(high - low, 1e-6)


def _texture(height: int, width: int, rng: SeededRandom) -> np.ndarray:
    """Return clouds and grain as of paper or cloth: float32 [height, width], some levels around 0."""
    plane = np.zeros((height, width), np.float32)
    for cell, reach in ((rng.whole((12, 40)), 9.0), (rng.whole((2, 5)), 5.0)):
        noise = grain(height // cell + 2, width // cell + 2, rng)[:, :, 0]
        coarse = noise * rng.uniform((0.2, 1)) * reach
        plane += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return plane


def _photo_crop(photos: Sequence[str], height: int, width: int, rng: SeededRandom) -> np.ndarray:
    """Cut a part of a photo, at its own scale or smaller, mirrored where the photo is too narrow."""
    photo = _photo(rng.choice(photos))
    scale = rng.uniform((1, max(1.0, min(4.0, photo.shape[0] / height, photo.shape[1] / width))))
    rows, columns = round(height * scale), round(width * scale)
    missing = (max(0, rows - photo.shape[0]), max(0, columns - photo.shape[1]))
    if any(missing):
        photo = cv2.copyMakeBorder(photo, 0, missing[0], 0, missing[1], cv2.BORDER_REFLECT)
    top, left = rng.randbelow(photo.shape[0] - rows + 1), rng.randbelow(photo.shape[1] - columns + 1)
    crop = photo[top : top + rows, left : left + columns]
    return cv2.resize(crop, (width, height), interpolation=cv2.INTER_AREA).astype(np.float32)


@lru_cache(maxsize=32)
def _photo(path: str) -> np.ndarray:
    photo = cv2.imread(path, cv2.IMREAD_COLOR)
    if photo is None:
        raise DataError(
            f"photos: OpenCV cannot read {path}. Fix: take it out of the folder.", code="broken_image"
        )
    scale = _PHOTO_SIDE / max(photo.shape[:2])
    return photo if scale >= 1 else cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
