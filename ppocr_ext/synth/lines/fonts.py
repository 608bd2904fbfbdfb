"""Find font files, divide their families among splits, and find the characters that each font draws."""

from __future__ import annotations

import gc
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

from fontTools.agl import AGL2UV, UV2AGL
from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTCollection, TTFont, TTLibError
from PIL import ImageFont
from tqdm import tqdm

from ppocr_ext.errors import DataError
from ppocr_ext.io.resources import named_by_content, package_folder
from ppocr_ext.limits import open_regular
from ppocr_ext.synth.seeded_random import SeededRandom

SUFFIXES = (".ttf", ".otf", ".ttc", ".otc")
# Packages with fonts, and the names of their fonts for text: matplotlib has symbol fonts too.
PACKAGES = {
    "captcha": ("*",),
    "matplotlib": ("DejaVuSans[!D]*", "DejaVuSerif[!D]*", "STIXGeneral*"),  # without DejaVuSansDisplay
    "mplfonts": ("*",),
}
_SIZE = 24  # pixels; glyphs are tested at this size
_MISPLACED = 0.3  # a font is not for text if a greater share of its letters and digits has other glyphs
_ABSENT = ".notdef"  # the glyph for characters that a font lacks
_SHARED = 8  # a glyph of more characters than this is a placeholder
_POOR = 0.5  # a note names fonts that draw less than this share of the characters
_NO_CHARACTER = "\U0010ffff"  # a code point that no font has
# Scripts whose letters change their shape or order with their neighbors; scripts written from the right do so too.
_SHAPED = ((0x0900, 0x0DFF), (0x0F00, 0x109F), (0x1780, 0x17FF))


@dataclass(frozen=True)
class FontFile:
    """One font in a file.

    Attributes:
        path: the file.
        index: the number of the font in a collection (``.ttc``); 0 for other files.
        family: the name of the family, such as ``DejaVu Sans``, which all weights and slants of a font share.
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
        places: paths, or names of packages; an empty list for the installed packages of ``PACKAGES``.

    Returns:
        The fonts, each once, sorted by file name.

    Raises:
        DataError: a place is neither path nor package, has no font, or a font cannot be read.
    """
    named = [str(place) for place in places] or [name for name in PACKAGES if package_folder(name)]
    if not named:
        raise DataError(
            "fonts: no package with fonts is installed. Fix: name font files or folders, such as /usr/share/fonts, or "
            "`pip install 'ppocr-ext[quickstart]'` (Latin letters), `pip install mplfonts` (Chinese).",
            code="no_fonts",
        )
    files = {path.resolve(): path for place in named for path in _files(place)}
    fonts = [font for path in files.values() for font in read_fonts(path)]
    return tuple(sorted(fonts, key=lambda font: (font.name, font.path)))


def system_fonts(characters: Iterable[str]) -> Iterator[FontFile]:
    """Yield the fonts of the operating system that have any of ``characters``, those with the shortest names first.

    matplotlib finds them; without it there are none. Fonts that cannot be read, and bitmap fonts, are left out.
    """
    if package_folder("matplotlib") is None:
        return
    from matplotlib.font_manager import findSystemFonts
    from matplotlib.ft2font import FT2Font

    points = set(map(ord, characters))
    for file in sorted(findSystemFonts(), key=lambda file: (len(Path(file).name), file)):
        with suppress(OSError, RuntimeError, DataError):
            for font in read_fonts(Path(file)) if points & FT2Font(file).get_charmap().keys() else ():
                load_face(font, _SIZE)
                yield font


def split_fonts(
    fonts: Sequence[FontFile], shares: Mapping[str, float], seed: int = 0
) -> dict[str, tuple[FontFile, ...]]:
    """Divide ``fonts`` so that no family is in two splits.

    Args:
        fonts: as :func:`find_fonts` returns them.
        shares: split name to its share of the families, such as ``{"train": 0.8, "val": 0.2}``; each split
            gets at least one family.
        seed: another seed gives another division.

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
    start = 0
    passed = 0.0
    total = sum(shares.values())
    for number, (name, share) in enumerate(shares.items(), start=1):
        passed += share
        # Each split gets at least one family, and leaves one for each later split.
        end = min(max(round(count * passed / total), start + 1), count - (len(shares) - number))
        divided[name] = tuple(font for font in fonts if font.family in families[start:end])
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
    folder = path if path.is_dir() else package_folder(place) if place.isidentifier() else None
    if folder is None:
        install = f" Fix: pip install {place}" if place in PACKAGES else ""
        raise DataError(
            f"fonts: {place} is neither a font file, nor a folder, nor an installed package with fonts (such as "
            f"{', '.join(PACKAGES)}).{install}",
            code="missing_file",
        )
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if folder != path:
        patterns = PACKAGES.get(place, ("*",))
        files = [file for file in files if any(fnmatch(file.name, pattern) for pattern in patterns)]
    if not files:
        raise DataError(f"fonts: {place} has no font ({', '.join(SUFFIXES)}).", code="no_fonts")
    return files


def read_fonts(path: Path) -> list[FontFile]:
    """Read the fonts of a file.

    Raises:
        DataError: it is not a font.
    """
    try:
        with open_regular(path) as stream:
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
    """Load a font at a size in pixels, without a shaping library, which may be missing and would change the images."""
    return ImageFont.truetype(font.path, size, index=font.index, layout_engine=ImageFont.Layout.BASIC)


class FontCoverage:
    """Find the characters that each of some fonts draws.

    Args:
        fonts: at least one.
        characters: the characters to draw; the space needs no font.
    """

    def __init__(self, fonts: Sequence[FontFile], characters: Iterable[str]) -> None:
        self.fonts = tuple(fonts)
        candidates = dict.fromkeys(character for character in characters if character != " ")
        simple = [character for character in candidates if not needs_shaping(character)]
        bar = tqdm(self.fonts, desc="fonts", unit="font", leave=False, disable=None, delay=2)
        self.drawn = tuple(drawable(font, simple) for font in bar)
        gc.collect()
        self._masks = {
            character: sum(1 << number for number, drawn in enumerate(self.drawn) if character in drawn)
            for character in candidates
        }

    def mask(self, text: str) -> int:
        """Return which fonts draw all of ``text``, as a mask: bit n is set for ``fonts[n]``."""
        mask = (1 << len(self.fonts)) - 1
        for character in set(text) - {" "}:
            mask &= self._masks.get(character, 0)
        return mask

    def numbers(self, mask: int) -> list[int]:
        """Return the numbers of the fonts in a mask."""
        return [number for number in range(len(self.fonts)) if mask >> number & 1]

    def choose(self, text: str, rng: SeededRandom) -> FontFile:
        """Choose one of the fonts that draw all of ``text``, with equal probabilities. There must be at least one."""
        return self.fonts[rng.choice(self.numbers(self.mask(text)))]

    def missing(self) -> list[str]:
        """Return the characters that no font draws."""
        return [character for character, mask in self._masks.items() if not mask]

    def notes(self) -> list[str]:
        """Return a sentence about the fonts that draw few of the characters; an empty list if there are none."""
        count = len(self._masks)
        poor = [
            f"{font.name} ({len(drawn) or 'none; not used'})"
            for font, drawn in zip(self.fonts, self.drawn, strict=True)
            if len(drawn) < _POOR * count
        ]
        return [f"of {count} characters, these fonts draw less than half: {', '.join(poor)}"] if poor else []


def needs_shaping(character: str) -> bool:
    """Return True if the shape or place of a letter depends on its neighbors, so that it cannot be drawn alone."""
    from_the_right = unicodedata.bidirectional(character) in ("R", "AL")
    return from_the_right or any(low <= ord(character) <= high for low, high in _SHAPED)


def drawable(font: FontFile, characters: Iterable[str]) -> frozenset[str]:
    """Return those of ``characters`` for which the font has a glyph of their own, with ink.

    A character is left out in these cases: the font does not map it. Its glyph has the name of another character (fonts
    of mathematical symbols have arrows in place of letters). Many characters share its glyph, which is then a
    placeholder. Its glyph is empty, or is the one for missing characters.
    """
    gc.collect()  # the tables of a large font refer to each other: 50 MB that Python would free much later
    with TTFont(font.path, lazy=True, fontNumber=font.index) as table:
        mapped: dict[int, str] = table.getBestCmap() or {}
        shared = Counter(mapped.values())
        misplaced = _misplaced(mapped)
        face = load_face(font, _SIZE)
        # Boxes are compared first: this is cheap, and few characters have the box of the absent glyph. Pixels cannot
        # be compared, since hinting makes different pixels from the same outline.
        box_of_absent = face.getbbox(_NO_CHARACTER)
        glyphs = table.getGlyphSet()
        outline_of_absent = _outline(glyphs, _ABSENT)
        result = set()
        for character in characters:
            glyph = mapped.get(ord(character), _ABSENT)
            if glyph == _ABSENT or shared[glyph] > _SHARED or ord(character) in misplaced:
                continue
            left, top, right, bottom = box = face.getbbox(character)
            absent = box == box_of_absent and _outline(glyphs, glyph) == outline_of_absent
            if right > left and bottom > top and not absent:
                result.add(sys.intern(character))
        return frozenset(result)


def _misplaced(mapped: Mapping[int, str]) -> frozenset[int]:
    """Return the code points of ASCII characters that have the glyph of another character, or all points if many have.

    Fonts of mathematical symbols are like this, and the names of their glyphs show it.
    """
    codes = [code for code in range(33, 127) if code in mapped]
    wrong = frozenset(code for code in codes if _names_another(mapped[code], code))
    letters = [code for code in codes if chr(code).isalnum()]
    if letters and len(wrong.intersection(letters)) > _MISPLACED * len(letters):
        return frozenset(mapped)
    return wrong


def _names_another(glyph: str, code: int) -> bool:
    """Return True if a glyph has the name of a symbol, or of another character than ``code`` (ASCII)."""
    if glyph in AGL2UV:
        return AGL2UV[glyph] != code
    # Names with a number, such as uni0041 and cid00034, are not words.
    is_word = re.fullmatch(r"[A-Za-z]{4,}", glyph) is not None
    return is_word and chr(code).isalnum() and not glyph.startswith(UV2AGL[code])


def _outline(glyphs: Any, name: str) -> list[Any]:
    """Return the strokes of a glyph, with those of the glyphs that it is composed of."""
    pen = DecomposingRecordingPen(glyphs)
    if name in glyphs:
        glyphs[name].draw(pen)
    return list(pen.value)
