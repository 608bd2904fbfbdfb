"""Draw an image of a text line: set the text, turn and slant it, put it on a background, and degrade the image."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ppocr_ext.data.image_check import content_issue, read_image_file
from ppocr_ext.errors import DataError
from ppocr_ext.io.resources import named_by_content
from ppocr_ext.synth.lines.fonts import FontFile, load_face
from ppocr_ext.synth.option_checks import check_options, is_range, is_whole
from ppocr_ext.synth.seeded_random import SeededRandom

Range = tuple[float, float]
BACKGROUNDS = ("plain", "gradient", "texture", "photo")
PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
OFF: Range = (0, 0)

# Key -> the least and the greatest value that is accepted.
_LIMITS: dict[str, Range] = {
    "sizes": (8, 1024),
    "margin": (0, 4),
    "spacing": (-0.2, 3),
    "rotation": (-30, 30),
    "shear": (-40, 40),
    "perspective": (0, 0.3),
    "blur": (0, 5),
    "shrink": (0, 8),
    "noise": (0, 80),
    "jpeg": (0, 100),
    "contrast": (20, 255),
}


@dataclass(frozen=True)
class LineStyle:
    """The look of text lines.

    Most values are ranges (least, greatest), from which each line draws its own value. ``(0, 0)`` switches an effect
    off.

    Args:
        height: height of the image, pixels.
        width: width of the image, pixels; None for that of the text. A longer text is squeezed to this width, and a
            shorter one gets a random place.
        sizes: font size, pixels; None for 0.55 to 0.85 of the height. Text that does not fit is made smaller.
        margin: space before and after the text, as a share of the height.
        spacing: additional space between characters, as a share of the font size.
        rotation: angle, counter-clockwise, degrees. A long line is turned less, to fit the height.
        shear: slant of the strokes, degrees.
        perspective: how far the corners of the text move, as a share of its height.
        blur: standard deviation of a Gaussian blur, pixels.
        shrink: factor by which the image is made smaller and then enlarged again. Up to 1, it is not changed. Small
            text is shrunk less, since it must stay legible.
        noise: standard deviation of the noise, levels of 255.
        jpeg: quality of a JPEG compression.
        contrast: difference in brightness of text and background, levels of 255.
        inverted: share of dark backgrounds among those that are not photos. Most of them have bright text.
        backgrounds: some of ``BACKGROUNDS``, with equal probabilities.
        photos: image files from which the background ``photo`` is cut.
    """

    height: int = 48
    width: int | None = None
    sizes: Range | None = None
    margin: Range = (0.05, 0.4)
    spacing: Range = (-0.02, 0.1)
    rotation: Range = (-2.5, 2.5)
    shear: Range = (-8, 8)
    perspective: Range = (0, 0.06)
    blur: Range = (0, 0.8)
    shrink: Range = (0.6, 1.6)
    noise: Range = (0, 9)
    jpeg: Range = (40, 95)
    contrast: Range = (90, 240)
    inverted: float = 0.3
    backgrounds: tuple[str, ...] = ("plain", "gradient", "texture")
    photos: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> LineStyle:
        """Read a style as a command or a config gives it.

        Args:
            options: values by name of the argument. A range may be a single number or a list, ``photos`` is a folder,
                and None stands for the default.

        Raises:
            DataError: no photo can be used.
        """
        arguments: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
        for key in _LIMITS.keys() & arguments.keys():
            values = arguments[key] if isinstance(arguments[key], list | tuple) else [arguments[key]]
            arguments[key] = tuple(values) * (2 if len(values) == 1 else 1)
        if "photos" in arguments:
            arguments["photos"] = find_photos(str(arguments["photos"]))
            arguments.setdefault("backgrounds", BACKGROUNDS)
        if isinstance(arguments.get("backgrounds"), list):
            arguments["backgrounds"] = tuple(arguments["backgrounds"])
        return cls(**arguments)

    @property
    def font_sizes(self) -> Range:
        """Return the font sizes, pixels."""
        return self.sizes or (0.55 * self.height, 0.85 * self.height)

    def to_json(self) -> dict[str, Any]:
        """Return the style as plain values, with photos by name and content."""
        return {**asdict(self), "photos": [named_by_content(photo) for photo in self.photos]}

    def check(self) -> None:
        """Check that the style can be drawn.

        Raises:
            DataError: a value cannot be used (``bad_value``). The message starts with the name of the option.
        """
        width = self.width
        check_options(
            ("height", is_whole(self.height, 16, 1024), self.height, "16 to 1024 whole pixels"),
            ("width", width is None or is_whole(width, 16, 8192), width, "16 to 8192 whole pixels"),
        )
        for key, (least, most) in _LIMITS.items():
            value = self.font_sizes if key == "sizes" else getattr(self, key)
            expected = f"the least and the greatest value, from {least:g} to {most:g}"
            check_options((key, is_range(value, least, most), value, expected))
        kinds = self.backgrounds
        check_options(
            ("inverted", is_range((self.inverted, 1), 0, 1), self.inverted, "a share from 0 to 1"),
            (
                "backgrounds",
                bool(kinds) and set(kinds) <= set(BACKGROUNDS),
                kinds,
                f"one or more of {', '.join(BACKGROUNDS)}",
            ),
            (
                "photos",
                "photo" not in kinds or bool(self.photos),
                self.photos,
                "a folder of images, since backgrounds has photo",
            ),
        )


def find_photos(folder: str | Path) -> tuple[str, ...]:
    """Return the image files in a folder and its subfolders, sorted.

    Raises:
        DataError: there is none, or one cannot be read.
    """
    suffixes = ", ".join(PHOTO_SUFFIXES)
    files = (path for path in Path(folder).rglob("*") if path.suffix.lower() in PHOTO_SUFFIXES)
    photos = sorted(str(path) for path in files if path.is_file())
    if not photos:
        raise DataError(f"photos: the folder {folder} has no image ({suffixes}).", code="no_images")
    problems = [
        issue
        for path in photos
        if (issue := content_issue(read_image_file(path), path, "header")) is not None
    ]
    if problems:
        reason, detail = problems[0]
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise DataError(f"photos: {detail}{more}. Fix: take them out of the folder of photos.", code=reason)
    return tuple(photos)


Color = tuple[float, float, float]  # blue, green, red: levels from 0 to 255
_LEGIBLE = 13  # pixels: the least height of the ink when an image is made smaller
_BLUR_OF_HEIGHT = 0.035  # limit of the blur, as a share of the height of the ink
_EDGE = 1  # rows and columns without ink at the border of the image
_RISE = 0.35  # limit of the rise of a line from one end to the other, as a share of its height
_ROOM = 2  # in font sizes: room above and below the baseline; before the first character there is half of it
_WEIGHTS = (0.114, 0.587, 0.299)  # weights of blue, green, red in brightness (ITU-R BT.601)
_PALE = 4  # paper and walls are mostly pale
_COLORFUL = 2  # ink is less pale
_DIM = 0.15  # share of lines whose ink has less contrast than it could have, if both bright and dark ink would do
_ROWS = 128  # size in pixels of the noise from which textures and grain are cut
_COLUMNS = 1024
_PHOTO_SIDE = 2048  # pixels; a larger photo is made smaller


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
        size_of_small = (max(1, round(width / factor)), max(1, round(height / factor)))
        small = cv2.resize(image, size_of_small, interpolation=cv2.INTER_AREA)
        image = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    sigma = min(rng.uniform(style.blur), _BLUR_OF_HEIGHT * bent.shape[0])
    if sigma >= 0.1:
        image = cv2.GaussianBlur(image, (0, 0), sigma)
    noise = grain(height, width, rng)
    image = cv2.addWeighted(image, 1, noise, rng.uniform(style.noise), 0, dtype=cv2.CV_8U)  # rounds and clips
    quality = round(rng.uniform(style.jpeg))
    if quality == 0:
        return image
    _, content = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return np.asarray(cv2.imdecode(content, cv2.IMREAD_COLOR))


def set_line(text: str, font: FontFile, size: int, spacing: float) -> np.ndarray:
    """Draw ``text`` in one row: uint8 [h, w], 255 where there is ink, cut to the ink.

    Letters are placed one by one, without kerning, since a shaping library may be missing.

    Args:
        text: all its characters are in the font, and at least one has ink.
        font: the font.
        size: pixels.
        spacing: pixels added after each character.
    """
    face = load_face(font, size)
    clusters: list[str] = []  # characters with their combining accents
    for character in text:
        if clusters and unicodedata.combining(character):
            clusters[-1] += character
        else:
            clusters.append(character)
    places = []
    pen = 0.0
    for cluster in clusters:
        places.append(round(pen))
        pen += max(_advance(cluster, face) + spacing, 1.0)
    room = _ROOM * size  # since glyphs may be larger than their advance
    image = Image.new("L", (places[-1] + 2 * room, 2 * room))
    draw = ImageDraw.Draw(image)
    for x, cluster in zip(places, clusters, strict=True):
        draw.text((x + room // 2, room), cluster, fill=255, font=face, anchor="ls")
    return np.asarray(image.crop(image.getbbox()))


@lru_cache(maxsize=1 << 15)
def _advance(cluster: str, face: ImageFont.FreeTypeFont) -> float:
    return float(face.getlength(cluster))


def bend(ink: np.ndarray, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Turn, slant and distort ``ink`` (uint8 [h, w]) in one step, and fit it into the height of the image."""
    height, width = ink.shape
    angle = math.radians(rng.uniform(style.rotation))
    most = math.atan(_RISE * height / width) if width > 2 * height else abs(angle)
    angle = max(-most, min(most, angle))
    slant = math.tan(math.radians(rng.uniform(style.shear)))
    reach = rng.uniform(style.perspective) * height
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float64)
    centered = corners - (width / 2, height / 2)
    centered[:, 0] -= slant * centered[:, 1]
    cos = math.cos(angle)
    sin = math.sin(angle)
    turned = centered @ np.array([[cos, -sin], [sin, cos]])
    turned += [(rng.uniform((-reach, reach)), rng.uniform((-reach, reach))) for _ in corners]
    turned -= turned.min(axis=0)
    turned *= min(1.0, (style.height - 2 * _EDGE) / turned[:, 1].max())
    columns, rows = np.ceil(turned.max(axis=0) - 1e-6).astype(int)  # a rounding error must not add a pixel
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), turned.astype(np.float32))
    return cv2.warpPerspective(ink, matrix, (max(1, int(columns)), max(1, int(rows))), flags=cv2.INTER_LINEAR)


def place(ink: np.ndarray, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Put ``ink`` at a random place of an image of the style's height (and width), with margins."""
    before, after = (max(_EDGE, round(rng.uniform(style.margin) * style.height)) for _ in range(2))
    across = rng.random()
    down = (rng.random() + rng.random()) / 2  # likelier in the middle
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


def background(height: int, width: int, style: LineStyle, rng: SeededRandom) -> np.ndarray:
    """Draw one of the style's backgrounds: float32 [height, width, 3], about 0 to 255."""
    kind = rng.choice(style.backgrounds)
    if kind == "photo":
        return _photo_crop(style.photos, height, width, rng)
    bright = rng.random() >= style.inverted
    level = rng.uniform((140, 250)) if bright else rng.uniform((10, 115))
    color = _tinted(level, rng, _PALE)
    plane = np.full((height, width, 3), color, np.float32)
    if kind == "gradient":
        end = _tinted(level + rng.uniform((-45, 45)), rng, _PALE)
        ramp = _ramp(height, width, rng)
        return plane + cv2.merge([ramp * (last - first) for first, last in zip(color, end, strict=True)])
    if kind == "texture":
        return plane + cv2.merge([_texture(height, width, rng)] * 3)
    return plane


def with_ink(back: np.ndarray, style: LineStyle, rng: SeededRandom) -> tuple[np.ndarray, Color]:
    """Return a background and an ink whose brightness differs as much as the style asks.

    A background with both dark and bright parts gets less contrast first.

    Args:
        back: float32 [h, w, 3].
        style: its ``contrast`` is used.
        rng: chooses the ink.
    """
    least, most = style.contrast
    darkest, brightest = _extremes(back)
    # No ink has enough contrast: reduce the contrast of the background, and move it to black or white.
    if max(darkest, 255 - brightest) < least:
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
    top = rng.randbelow(_ROWS)
    left = rng.randbelow(_COLUMNS)
    if height <= _ROWS and width <= _COLUMNS:  # a slice is a view, five times as fast as indexing
        return tile[top : top + height, left : left + width]
    rows = np.arange(top, top + height) % _ROWS
    columns = np.arange(left, left + width) % _COLUMNS
    return tile[rows[:, None], columns]


@lru_cache(maxsize=1)
def _noise_tile() -> np.ndarray:
    # RandomState gives the same numbers in all versions of NumPy; a Generator may change.
    tile = np.random.RandomState(20).standard_normal((_ROWS, _COLUMNS, 3)).astype(np.float32)
    return np.tile(tile, (2, 2, 1))


def _tinted(level: float, rng: SeededRandom, paleness: int) -> Color:
    """Return a color of the brightness ``level`` (0 to 255). More ``paleness`` makes strong colors rarer."""
    level = min(255.0, max(0.0, level))
    strength = rng.random() ** paleness
    hue = (rng.random() * 255, rng.random() * 255, rng.random() * 255)
    own = sum(weight * channel for weight, channel in zip(_WEIGHTS, hue, strict=True))
    shift = [(channel - own) * strength for channel in hue]
    # The shift must not leave the range of a channel, since clipping would change the brightness.
    room = min(((255 - level) if s > 0 else level) / max(abs(s), 1e-6) for s in shift)
    blue, green, red = (level + s * min(1.0, room) for s in shift)
    return blue, green, red


def _extremes(back: np.ndarray) -> tuple[float, float]:
    """Return the brightness of the darkest and the brightest area of some pixels."""
    height, width = back.shape[:2]
    small = cv2.resize(back, (max(1, width // 8), max(1, height // 8)), interpolation=cv2.INTER_AREA)
    levels = small.reshape(-1, 3) @ np.array(_WEIGHTS, np.float32)
    return float(levels.min()), float(levels.max())


def _ramp(height: int, width: int, rng: SeededRandom) -> np.ndarray:
    """Return a plane that rises from 0 to 1 in a random direction: float32 [height, width]."""
    across = rng.uniform((-1, 1))
    down = rng.uniform((-1, 1))
    row = np.linspace(0, across, width, dtype=np.float32)
    plane = row + np.linspace(0, down, height, dtype=np.float32)[:, None]
    low = float(plane.min())
    high = float(plane.max())
    return (plane - low) / max(high - low, 1e-6)


def _texture(height: int, width: int, rng: SeededRandom) -> np.ndarray:
    """Return clouds and grain like those of paper or cloth: float32 [height, width], some levels around 0."""
    plane = np.zeros((height, width), np.float32)
    for cell, reach in ((rng.whole((12, 40)), 9.0), (rng.whole((2, 5)), 5.0)):
        noise = grain(height // cell + 2, width // cell + 2, rng)[:, :, 0]
        coarse = noise * rng.uniform((0.2, 1)) * reach
        plane += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return plane


def _photo_crop(photos: Sequence[str], height: int, width: int, rng: SeededRandom) -> np.ndarray:
    """Cut a part out of a photo, at its own scale or smaller. A photo that is too small is mirrored at its edges."""
    photo = _photo(rng.choice(photos))
    scale = rng.uniform((1, max(1.0, min(4.0, photo.shape[0] / height, photo.shape[1] / width))))
    rows = round(height * scale)
    columns = round(width * scale)
    missing = (max(0, rows - photo.shape[0]), max(0, columns - photo.shape[1]))
    if any(missing):
        photo = cv2.copyMakeBorder(photo, 0, missing[0], 0, missing[1], cv2.BORDER_REFLECT)
    top = rng.randbelow(photo.shape[0] - rows + 1)
    left = rng.randbelow(photo.shape[1] - columns + 1)
    crop = photo[top : top + rows, left : left + columns]
    return cv2.resize(crop, (width, height), interpolation=cv2.INTER_AREA).astype(np.float32)


@lru_cache(maxsize=32)
def _photo(path: str) -> np.ndarray:
    if (photo := cv2.imread(path, cv2.IMREAD_COLOR)) is None:
        raise DataError(
            f"photos: OpenCV cannot read {path}. Fix: take it out of the folder.", code="broken_image"
        )
    scale = _PHOTO_SIDE / max(photo.shape[:2])
    return photo if scale >= 1 else cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
