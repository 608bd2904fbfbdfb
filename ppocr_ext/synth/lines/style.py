"""How lines of text look: size, slant, colours, and what befalls them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.data.image_check import image_fault
from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content

Range = tuple[float, float]
BACKGROUNDS = ("plain", "gradient", "texture", "photo")
PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
OFF: Range = (0, 0)

# key -> least and greatest value that can be asked for
_LIMITS: dict[str, Range] = {
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
    """Ranges of which each line draws its values; ``(0, 0)`` switches an effect off.

    Args:
        height: pixels of the image.
        width: pixels; None for as wide as the text needs. A longer text is squeezed, a shorter one put anywhere.
        sizes: font size, pixels; None for 0.55 to 0.85 of the height. Text that does not fit is set smaller.
        margin: space before and behind the text, shares of the height.
        spacing: added between characters, shares of the font size.
        rotation: degrees, counter-clockwise. A long line turns less, or it would not fit the height.
        shear: slant of the strokes, degrees.
        perspective: how far the corners of the text move, shares of its height.
        blur: standard deviation of a Gaussian, pixels.
        shrink: the image is made so many times smaller and enlarged again (up to 1: not at all); less for
            small text, which has to stay legible.
        noise: standard deviation, levels of 255.
        jpeg: quality that the image is compressed with and read again.
        contrast: difference in brightness of text and background, levels of 255.
        inverted: share of dark backgrounds, photos aside; most of them have bright text.
        backgrounds: of ``BACKGROUNDS``, each as likely.
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

    @property
    def font_sizes(self) -> Range:
        """Font sizes, pixels."""
        return self.sizes or (0.55 * self.height, 0.85 * self.height)

    def to_json(self) -> dict[str, Any]:
        """The style as plain values; photos by name and content.

        Raises:
            DataError: a photo cannot be read.
        """
        try:
            photos = [named_by_content(photo) for photo in self.photos]
        except OSError as error:
            raise DataError(f"{error.filename}: {error.strerror}. Take it out of --backgrounds.") from error
        plain = {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }
        return {**plain, "photos": photos}

    def check(self) -> None:
        """Refuse what cannot be drawn.

        Raises:
            DataError: a size or a range is out of bounds, or a background is unknown.
        """
        if not 16 <= self.height <= 1024 or not (self.width is None or 16 <= self.width <= 8192):
            raise DataError(
                f"Image size {self.width or 'any'}×{self.height} is out of range (height 16 to 1024 pixels, width "
                "16 to 8192)."
            )
        smallest, largest = self.font_sizes
        if not 8 <= smallest <= largest <= 1024:
            raise DataError(f"Font sizes {smallest:g} to {largest:g} are out of range (8 to 1024 pixels).")
        for key, (least, greatest) in _LIMITS.items():
            low, high = getattr(self, key)
            if not least <= low <= high <= greatest:
                raise DataError(
                    f"--{key} {low:g} {high:g} is out of range. Give the least and the greatest value, from "
                    f"{least:g} to {greatest:g}."
                )
        if not 0 <= self.inverted <= 1:
            raise DataError(f"--inverted {self.inverted:g} is no share. Give 0 to 1.")
        unknown = [name for name in self.backgrounds if name not in BACKGROUNDS]
        if unknown or not self.backgrounds:
            raise DataError(f"Backgrounds {unknown or 'none'}: choose among {', '.join(BACKGROUNDS)}.")
        if "photo" in self.backgrounds and not self.photos:
            raise DataError("The background photo needs a folder of images: --backgrounds FOLDER.")


def find_photos(folder: str | Path) -> tuple[str, ...]:
    """Image files in a folder and its subfolders, sorted.

    Raises:
        DataError: there is none, or one cannot be read.
    """
    found = sorted(
        str(path)
        for path in Path(folder).rglob("*")
        if path.suffix.lower() in PHOTO_SUFFIXES and path.is_file()
    )
    if not found:
        raise DataError(f"{folder}: no image ({', '.join(PHOTO_SUFFIXES)}) to cut backgrounds from.")
    faults = [fault for path in found if (fault := image_fault(path, "header")) is not None]
    if faults:
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise DataError(f"{faults[0][1]}{more}. Take them out of the folder of backgrounds.")
    return tuple(found)
