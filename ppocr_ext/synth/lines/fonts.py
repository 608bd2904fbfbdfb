"""Font files: where they are found, which belong together, and how they are divided among splits."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from fontTools.ttLib import TTCollection, TTFont, TTLibError

from ppocr_ext.errors import DataError
from ppocr_ext.io.file_names import named_by_content
from ppocr_ext.synth.seeded_random import SeededRandom

SUFFIXES = (".ttf", ".otf", ".ttc", ".otc")
# Packages that bring fonts, and which of theirs are for running text: matplotlib has symbol fonts besides.
PACKAGES = {
    "captcha": ("*",),
    "matplotlib": ("DejaVuSans*", "DejaVuSerif*", "STIXGeneral*"),
    "mplfonts": ("*",),
}
_NOT_TEXT = ("DejaVuSansDisplay*", "DejaVuSerifDisplay*")


@dataclass(frozen=True)
class FontFile:
    """A font in a file.

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
        """File name, with the number of the font in a collection."""
        return f"{Path(self.path).name}{f'#{self.index}' if self.index else ''}"

    def to_json(self) -> str:
        """Name and SHA-256, without the folder."""
        return f"{named_by_content(self.path)}{f' #{self.index}' if self.index else ''}"


def find_fonts(places: Iterable[str | Path] = ()) -> tuple[FontFile, ...]:
    """The fonts in files, folders (with their subfolders) and installed packages.

    Args:
        places: paths, or names of packages; none for the packages in ``PACKAGES`` that are installed.

    Returns:
        The fonts, each once, sorted by file name.

    Raises:
        DataError: a place is neither path nor package, has no font, or a font cannot be read.
    """
    named = [str(place) for place in places]
    if not named:
        named = [name for name in PACKAGES if _package_folder(name) is not None]
        if not named:
            raise DataError(
                "No font is installed. Name font files or folders with --fonts, or "
                "`pip install 'ppocr-ext[quickstart]'` (Latin letters), `pip install mplfonts` (Chinese)."
            )
    files = {path.resolve(): path for place in named for path in _files(place)}
    fonts = [font for path in files.values() for font in _read(path)]
    return tuple(sorted(fonts, key=lambda font: (font.name, font.path)))


def split_fonts(
    fonts: Sequence[FontFile], shares: Mapping[str, float], seed: int = 0
) -> dict[str, tuple[FontFile, ...]]:
    """Divide ``fonts`` so that no family is in two splits.

    Args:
        fonts: as :func:`find_fonts` gives them.
        shares: split name to its share of the families, such as ``{"train": 0.8, "val": 0.2}``; each split
            gets at least one family.
        seed: another seed, another division.

    Raises:
        DataError: there are fewer families than splits, or a share is not positive.
    """
    families = sorted({font.family for font in fonts})
    if any(share <= 0 for share in shares.values()):
        raise DataError(f"Shares of fonts {dict(shares)} must be positive.")
    if len(families) < len(shares):
        raise DataError(
            f"{len(families)} font families ({', '.join(families)}) cannot be divided among "
            f"{len(shares)} splits ({', '.join(shares)}). Name more fonts."
        )
    rng = SeededRandom(seed, "fonts", 0)
    families.sort(key=lambda _: rng.random())
    ends = _ends(list(shares.values()), len(families))
    chosen = {
        name: set(families[start:end]) for name, start, end in zip(shares, [0, *ends[:-1]], ends, strict=True)
    }
    return {name: tuple(font for font in fonts if font.family in chosen[name]) for name in shares}


def _ends(shares: list[float], count: int) -> list[int]:
    """Where each of the parts of ``count`` things ends, none empty, sizes near their shares."""
    ends: list[int] = []
    total, passed = sum(shares), 0.0
    for number, share in enumerate(shares, start=1):
        passed += share
        after = len(shares) - number  # parts to come need one thing each
        least = (ends[-1] if ends else 0) + 1
        ends.append(min(max(round(count * passed / total), least), count - after))
    return ends


def _to_install(place: str) -> str:
    return f"; pip install {place}" if place in PACKAGES else ""


def _files(place: str) -> list[Path]:
    path = Path(place)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = _fonts_below(path)
        if not found:
            raise DataError(f"The folder {place} has no font ({', '.join(SUFFIXES)}).")
        return found
    folder = _package_folder(place) if place.isidentifier() else None
    if folder is None:
        raise DataError(
            f"{place} is neither a font file, nor a folder, nor an installed package that has fonts. "
            f"Packages with fonts: {', '.join(PACKAGES)}{_to_install(place)}."
        )
    patterns = PACKAGES.get(place, ("*",))
    found = [
        font
        for font in _fonts_below(folder)
        if any(fnmatch(font.name, pattern) for pattern in patterns)
        and not any(fnmatch(font.name, pattern) for pattern in _NOT_TEXT)
    ]
    if not found:
        raise DataError(f"The package {place} has no font ({', '.join(SUFFIXES)}).")
    return found


def _fonts_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _package_folder(name: str) -> Path | None:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(locations[0]) if locations else None


def _read(path: Path) -> list[FontFile]:
    try:
        with path.open("rb") as stream:
            collection = stream.read(4) == b"ttcf"
            stream.seek(0)
            if not collection:
                return [FontFile(str(path), 0, _family(TTFont(stream, lazy=True), path))]
            fonts = TTCollection(stream, lazy=True).fonts
            return [FontFile(str(path), index, _family(font, path)) for index, font in enumerate(fonts)]
    except (OSError, TTLibError) as error:
        raise DataError(
            f"{path} cannot be used as a font: {error}. Give a .ttf, .otf or .ttc file."
        ) from error


def _family(font: TTFont, path: Path) -> str:
    name = font["name"].getBestFamilyName() if "name" in font else None
    return str(name or path.stem)
