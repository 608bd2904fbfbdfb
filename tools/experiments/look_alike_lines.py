"""The lines of the look-alikes experiment: Chinese, in fonts that differ between training, choosing and testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ppocr_ext.characters.look_alikes import read_groups, within
from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder
from ppocr_ext.synth.lines import (
    FontFile,
    FrequentCharacters,
    LineSource,
    LineSplit,
    LineStyle,
    RandomTexts,
    find_fonts,
)

# Of the package mplfonts, Noto and Source Han alone. They are of two designs, sans and serif, and both are
# trained: the fonts of testing are other files, with other Latin letters and metrics, but no third design.
FONTS = {
    "train": ("NotoSansCJKsc-Regular.otf", "NotoSerifCJKsc-Regular.otf"),
    "val": ("NotoSansMonoCJKsc-Regular.otf",),
    "test": ("SourceHanMonoSC-Regular.otf", "SourceHanSerifSC-Regular.otf"),
}
SHARE = 0.5  # of the characters of a line that are drawn from the look-alikes alone
STYLE = LineStyle(height=32)


@dataclass(frozen=True)
class Lines:
    """A folder of lines.

    Attributes:
        name: of the folder.
        fonts: key of ``FONTS``.
        count: lines.
        length: fewest and most characters.
        rich: whether look-alikes are frequent; else all characters are as likely.
        seed: of texts and looks.
    """

    name: str
    fonts: str
    count: int
    length: tuple[int, int]
    rich: bool
    seed: int


def folders(train: int, judged: int, seed: int) -> tuple[Lines, ...]:
    """Lines to train on, to choose on and to test on; of the latter two also general lines."""
    # Short lines are trained too: without them CTC stays on its plateau for thousands of steps.
    return (
        Lines("train", "train", train, (1, 6), True, seed),
        Lines("val", "val", judged, (3, 6), True, seed + 1),
        Lines("val_general", "val", judged, (3, 6), False, seed + 2),
        Lines("test", "test", judged, (3, 6), True, seed + 3),
        Lines("test_general", "test", judged, (3, 6), False, seed + 4),
    )


def groups_in(characters: Sequence[str]) -> tuple[str, ...]:
    """The shipped groups of look-alikes, as far as ``characters`` have them."""
    return within(read_groups(), characters)


def make_lines(folder: Path, dictionary: Path, wanted: Sequence[Lines], processes: int) -> None:
    """Draw what is missing of ``wanted`` below ``folder``.

    Raises:
        DataError: a font is not installed.
    """
    fonts = {Path(font.path).name: font for font in _fonts()}
    characters = "".join(Charset.from_file(dictionary).characters)
    alike = "".join(dict.fromkeys("".join(groups_in(characters))))
    for lines in wanted:
        texts = RandomTexts(
            characters, lines.length, FrequentCharacters(alike, SHARE) if lines.rich else None
        )
        split = "train" if lines.name == "train" else "val"
        drawn = LineSplit(texts, tuple(fonts[name] for name in FONTS[lines.fonts]))
        source = LineSource({split: drawn}, STYLE, lines.seed)
        counts = {"train": 0, "val": 0, split: lines.count}
        folder_of = DatasetFolder(source, counts["train"], counts["val"], characters=characters)
        make_folder(folder / lines.name, folder_of, processes)


def _fonts() -> tuple[FontFile, ...]:
    found = find_fonts(["mplfonts"])
    missing = {name for names in FONTS.values() for name in names} - {Path(font.path).name for font in found}
    if missing:
        raise DataError(
            f"The package mplfonts has no {', '.join(sorted(missing))}. Fix: install the version that the experiment "
            f"used: pip install mplfonts==0.0.11",
            code="no_fonts",
        )
    return found
