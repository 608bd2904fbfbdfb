"""Font files: where they are found, which belong to one family, and how they are divided among splits."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from fontTools.ttLib import TTCollection, TTFont, TTLibError
from PIL import ImageFont

from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content
from ppocr_ext.synth.seeded_random import SeededRandom

SUFFIXES = (".ttf", ".otf", ".ttc", ".otc")
# Packages that bring fonts, and which of theirs are for running text: matplotlib has symbol fonts besides.
PACKAGES = {
    "captcha": ("*",),
    "matplotlib": ("DejaVuSans[!D]*", "DejaVuSerif[!D]*", "STIXGeneral*"),  # without DejaVuSansDisplay
    "mplfonts": ("*",),
}


@dataclass(frozen=True)
class FontFile:
    """Name a font in a file.

    Attributes:
        path: the file.
        index: the number of the font in a collection (``.ttc``), else 0.
        family: such as ``DejaVu Sans``; its weights and slants share it.
    """

    path: str
    index: int
    family: str

    @property
    def name(self) -> str:
        """Return the file name, with the number of the font in a collection."""
        return f"{Path(self.path).name}{f'#{self.index}' if self.index else ''}"

    def to_json(self) -> str:
        """Return name and SHA-256, without the folder."""
        return f"{named_by_content(self.path)}{f' #{self.index}' if self.index else ''}"


def find_fonts(places: Iterable[str | Path] = ()) -> tuple[FontFile, ...]:
    """Find the fonts in files, folders (with their subfolders) and installed packages.

    Args:
        places: paths, or names of packages; none for the packages in ``PACKAGES`` that are installed.

    Returns:
        The fonts, each once, sorted by file name.

    Raises:
        DataError: a place is neither path nor package, has no font, or a font cannot be read.
    """
    named = [str(place) for place in places] or [
        name for name in PACKAGES if _package_folder(name) is not None
    ]
    if not named:
        raise DataError(
            "fonts: no font is installed. Fix: name font files or folders, or `pip install 'ppocr-ext[quickstart]'` "
            "(Latin letters), `pip install mplfonts` (Chinese).",
            code="no_fonts",
        )
    files = {path.resolve(): path for place in named for path in _files(place)}
    fonts = [font for path in files.values() for font in read_fonts(path)]
    return tuple(sorted(fonts, key=lambda font: (font.name, font.path)))


def split_fonts(
    fonts: Sequence[FontFile], shares: Mapping[str, float], seed: int = 0
) -> dict[str, tuple[FontFile, ...]]:
    """Divide ``fonts`` so that no family is in two splits.

    Args:
        fonts: as :func:`find_fonts` returns them.
        shares: split name to its share of the families, such as ``{"train": 0.8, "val": 0.2}``; each split
            gets at least one family.
        seed: another seed, another division.

    Raises:
        DataError: there are fewer families than splits, or a share is not positive.
    """
    families = sorted({font.family for font in fonts})
    if any(share <= 0 for share in shares.values()):
        raise DataError(f"fonts: shares must be positive (found {dict(shares)}).", code="bad_value")
    count = len(families)
    if count < len(shares):
        raise DataError(
            f"fonts: {count} font families ({', '.join(families)}) cannot be divided among {len(shares)} splits "
            f"({', '.join(shares)}). Fix: name more fonts.",
            code="no_fonts",
        )
    rng = SeededRandom(seed, "fonts", 0)
    families.sort(key=lambda _: rng.random())
    divided: dict[str, tuple[FontFile, ...]] = {}
    start, passed, total = 0, 0.0, sum(shares.values())
    for number, (name, share) in enumerate(shares.items(), start=1):
        passed += share
        # each split gets at least one family, and so does each that follows
        end = min(max(round(count * passed / total), start + 1), count - (len(shares) - number))
        chosen = set(families[start:end])
        divided[name] = tuple(font for font in fonts if font.family in chosen)
        start = end
    return divided


def _files(place: str) -> list[Path]:
    """Return the font files in a file, a folder or a package.

    Raises:
        DataError: there is none.
    """
    path = Path(place)
    if path.is_file():
        return [path]
    folder = path if path.is_dir() else _package_folder(place) if place.isidentifier() else None
    if folder is None:
        install = f" Fix: pip install {place}" if place in PACKAGES else ""
        raise DataError(
            f"fonts: {place} is neither a font file, nor a folder, nor an installed package with fonts (such as "
            f"{', '.join(PACKAGES)}).{install}",
            code="missing_file",
        )
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if folder != path:
        patterns = PACKAGES.get(place, ("*",))
        found = [file for file in found if any(fnmatch(file.name, pattern) for pattern in patterns)]
    if not found:
        raise DataError(f"fonts: {place} has no font ({', '.join(SUFFIXES)}).", code="no_fonts")
    return found


def _package_folder(name: str) -> Path | None:
    """Return the folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def read_fonts(path: Path) -> list[FontFile]:
    """Read the fonts of a file.

    Raises:
        DataError: it is not a font.
    """
    try:
        with path.open("rb") as stream:
            collection = stream.read(4) == b"ttcf"
            stream.seek(0)
            fonts = TTCollection(stream, lazy=True).fonts if collection else [TTFont(stream, lazy=True)]
            names = [font["name"].getBestFamilyName() if "name" in font else None for font in fonts]
    except (OSError, TTLibError) as error:
        raise DataError(
            f"fonts: {path} is not a font ({error}). Fix: give a .ttf, .otf or .ttc file.", code="bad_font"
        ) from error
    return [FontFile(str(path), index, str(name or path.stem)) for index, name in enumerate(names)]


@lru_cache(maxsize=512)
def load_face(font: FontFile, size: int) -> ImageFont.FreeTypeFont:
    """Load a font at a size in pixels, without a shaping library: it may be missing, and would change the images."""
    return ImageFont.truetype(font.path, size, index=font.index, layout_engine=ImageFont.Layout.BASIC)
