"""How text lines look: size, slant, colors and degradation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.data.image_check import image_issue
from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content
from ppocr_ext.synth.option_checks import check_options, is_range, is_whole

Range = tuple[float, float]
BACKGROUNDS = ("plain", "gradient", "texture", "photo")
PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
OFF: Range = (0, 0)

# key -> least and greatest value that is accepted
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
    """Describe how lines look: ranges of the random values of each line; ``(0, 0)`` switches an effect off.

    Args:
        height: pixels of the image.
        width: pixels; None for as wide as the text needs. A longer text is squeezed, a shorter one put anywhere.
        sizes: font size, pixels; None for 0.55 to 0.85 of the height. Text that does not fit is set smaller.
        margin: space before and after the text, shares of the height.
        spacing: added between characters, shares of the font size.
        rotation: degrees, counter-clockwise. A long line turns less, or it would not fit the height.
        shear: slant of the strokes, degrees.
        perspective: how far the corners of the text move, shares of its height.
        blur: standard deviation of a Gaussian, pixels.
        shrink: factor by which the image is made smaller and enlarged again (up to 1: not at all); less for
            small text, which has to stay legible.
        noise: standard deviation, levels of 255.
        jpeg: quality of a JPEG compression.
        contrast: difference in brightness of text and background, levels of 255.
        inverted: share of dark backgrounds, photos excluded; most of them have bright text.
        backgrounds: of ``BACKGROUNDS``, each with the same probability.
        photos: image files that ``photo`` cuts backgrounds from.
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
            options: names of the arguments; a range may be a single number or a list, ``photos`` is a folder.
                None stands for the default.

        Raises:
            DataError: no photo can be used.
        """
        given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
        for key in _LIMITS.keys() & given.keys():
            values = given[key] if isinstance(given[key], list | tuple) else [given[key]]
            given[key] = tuple(values) * (2 if len(values) == 1 else 1)
        if "photos" in given:
            given["photos"] = find_photos(str(given["photos"]))
            given.setdefault("backgrounds", BACKGROUNDS)
        if isinstance(given.get("backgrounds"), list):
            given["backgrounds"] = tuple(given["backgrounds"])
        return cls(**given)

    @property
    def font_sizes(self) -> Range:
        """Return the font sizes, pixels."""
        return self.sizes or (0.55 * self.height, 0.85 * self.height)

    def to_json(self) -> dict[str, Any]:
        """Return the style as plain values; photos by name and content."""
        return {**asdict(self), "photos": [named_by_content(photo) for photo in self.photos]}

    def check(self) -> None:
        """Check that the style can be drawn.

        Raises:
            DataError: ``bad_value``; the message starts with the name of the option.
        """
        size = "16 to {} whole pixels"
        check_options(
            ("height", is_whole(self.height, 16, 1024), self.height, size.format(1024)),
            ("width", self.width is None or is_whole(self.width, 16, 8192), self.width, size.format(8192)),
        )
        for key, (least, most) in _LIMITS.items():
            found = self.font_sizes if key == "sizes" else getattr(self, key)
            expected = f"the least and the greatest value, from {least:g} to {most:g}"
            check_options((key, is_range(found, least, most), found, expected))
        share = is_range((self.inverted, self.inverted), 0, 1)
        kinds = bool(self.backgrounds) and set(self.backgrounds) <= set(BACKGROUNDS)
        photos = "photo" not in self.backgrounds or bool(self.photos)
        check_options(
            ("inverted", share, self.inverted, "a share from 0 to 1"),
            ("backgrounds", kinds, self.backgrounds, f"one or more of {', '.join(BACKGROUNDS)}"),
            ("photos", photos, self.photos, "a folder of images, since backgrounds has photo"),
        )


def find_photos(folder: str | Path) -> tuple[str, ...]:
    """Return the image files in a folder and its subfolders, sorted.

    Raises:
        DataError: there is none, or one cannot be read.
    """
    suffixes = ", ".join(PHOTO_SUFFIXES)
    files = (path for path in Path(folder).rglob("*") if path.suffix.lower() in PHOTO_SUFFIXES)
    found = sorted(str(path) for path in files if path.is_file())
    if not found:
        raise DataError(f"photos: the folder {folder} has no image ({suffixes}).", code="no_images")
    problems = [problem for path in found if (problem := image_issue(path, "header")) is not None]
    if problems:
        reason, detail = problems[0]
        more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise DataError(f"photos: {detail}{more}. Fix: take them out of the folder of photos.", code=reason)
    return tuple(found)
