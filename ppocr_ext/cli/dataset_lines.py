"""``ppocr-ext make-dataset lines``: text lines drawn with fonts, from a corpus or from random characters."""

from __future__ import annotations

import argparse
import string
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ppocr_ext.charset import Charset
from ppocr_ext.cli.dataset_options import FOLDER, add_folder_arguments, report
from ppocr_ext.errors import DataError
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder
from ppocr_ext.synth.lines.corpus import CorpusTexts
from ppocr_ext.synth.lines.fonts import FontFile, find_fonts, split_fonts
from ppocr_ext.synth.lines.source import LineSource, LineSplit
from ppocr_ext.synth.lines.style import BACKGROUNDS, LineStyle, find_photos
from ppocr_ext.synth.lines.texts import RandomTexts, RichIn, Texts

KIND = "lines"
HELP = "lines of text with your fonts, from a corpus or from random characters"
EPILOG = f"""\
examples:
  ppocr-ext make-dataset lines --out data/lines
  ppocr-ext make-dataset lines --out data/news --corpus news.txt --fonts fonts/ mplfonts --dict dict.txt
  ppocr-ext make-dataset lines --out data/lines --font-split 0.2 --rich-in 0OQ1Il 0.4 --width 320
  ppocr-ext make-dataset lines --out data/plain --rotation 0 --shear 0 --blur 0 --noise 0 --jpeg 0

A range takes two numbers, the least and the greatest, or one for always that; 0 switches an effect off.

{FOLDER}"""

# option -> metavar and help; the keys of `LineStyle`, which has the defaults
_RANGES = {
    "sizes": ("PIXELS", "font size"),
    "margin": ("SHARE", "space before and behind the text, of the height"),
    "spacing": ("SHARE", "added between characters, of the font size"),
    "rotation": ("DEGREES", "turn; long lines turn less, to fit the height"),
    "shear": ("DEGREES", "slant of the strokes"),
    "perspective": ("SHARE", "how far the corners of the text move, of its height"),
    "blur": ("PIXELS", "standard deviation"),
    "shrink": ("TIMES", "make so many times smaller and enlarge again; up to 1: not at all"),
    "noise": ("LEVELS", "standard deviation, of 255"),
    "jpeg": ("QUALITY", "compress and read again"),
    "contrast": ("LEVELS", "difference in brightness of text and background, of 255"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_folder_arguments(parser)
    _add_text_arguments(parser.add_argument_group("text"))
    _add_font_arguments(parser.add_argument_group("fonts"))
    _add_style_arguments(parser.add_argument_group("look"))


def make(args: argparse.Namespace) -> int:
    """Make the folder; the exit code."""
    train_texts, val_texts = _texts(args)
    train_fonts, val_fonts = _fonts(args)
    splits = {"train": LineSplit(train_texts, train_fonts), "val": LineSplit(val_texts, val_fonts)}
    counts = {"train": args.train, "val": args.val}
    source = LineSource(
        {name: split for name, split in splits.items() if counts[name]}, _style(args), args.seed
    )
    for note in source.notes:
        print(f"note: {note}", file=sys.stderr)
    characters = None if args.dict is None else _dictionary(args.dict)
    wanted = DatasetFolder(source, args.train, args.val, args.format, characters)
    report(args.out, make_folder(args.out, wanted, args.processes))
    if args.corpus and not args.no_space:
        print("labels may have spaces: train with Global.use_space_char: true, or draw with --no-space")
    return 0


def _texts(args: argparse.Namespace) -> tuple[Texts, Texts]:
    """Texts of train and of val."""
    length = (args.length[0], args.length[1])
    rich_in = _rich_in(args)
    characters = args.characters if args.dict is None else "".join(_visible(_dictionary(args.dict)))
    if not args.corpus:
        if args.val_corpus:
            raise DataError("--val-corpus needs --corpus.")
        random = RandomTexts(
            (characters or string.digits + string.ascii_letters).replace(" ", ""),
            length,
            rich_in,
            args.skip_undrawable,
        )
        return random, random
    train = CorpusTexts(tuple(args.corpus), length, characters, not args.no_space, rich_in)
    return train, replace(train, files=tuple(args.val_corpus)) if args.val_corpus else train


def _rich_in(args: argparse.Namespace) -> RichIn | None:
    if args.rich_in is None:
        return None
    named, share = args.rich_in
    try:
        number = float(share)
    except ValueError:
        raise DataError(
            f"--rich-in {named} {share}: the share is no number. Give 0.4, for example."
        ) from None
    file = Path(named)
    text = file.read_text(encoding="utf-8-sig") if file.is_file() else named
    return RichIn("".join(dict.fromkeys(character for character in text if not character.isspace())), number)


def _dictionary(path: Path) -> tuple[str, ...]:
    return Charset.from_file(path).characters


def _visible(entries: tuple[str, ...]) -> Iterator[str]:
    """Single visible characters: a dictionary may have entries of several and white space besides."""
    return (entry for entry in entries if len(entry) == 1 and entry.isprintable() and not entry.isspace())


def _fonts(args: argparse.Namespace) -> tuple[tuple[FontFile, ...], tuple[FontFile, ...]]:
    """Fonts of train and of val."""
    if args.val_fonts and args.font_split is not None:
        raise DataError("--val-fonts and --font-split exclude each other: give one of them.")
    fonts = find_fonts(args.fonts)
    if args.font_split is not None:
        if not 0 < args.font_split < 1:
            raise DataError(
                f"--font-split {args.font_split:g} is no share of the fonts. Give 0.2, for example."
            )
        parts = split_fonts(fonts, {"train": 1 - args.font_split, "val": args.font_split}, args.seed)
        return parts["train"], parts["val"]
    return fonts, find_fonts(args.val_fonts) if args.val_fonts else fonts


def _style(args: argparse.Namespace) -> LineStyle:
    asked = {key: _range(key, value) for key in _RANGES if (value := getattr(args, key)) is not None}
    photos = find_photos(args.backgrounds) if args.backgrounds else ()
    kinds = args.background_kinds or (*LineStyle.backgrounds, *(("photo",) if photos else ()))
    return LineStyle(
        height=args.height,
        width=args.width,
        inverted=args.inverted,
        backgrounds=tuple(kinds),
        photos=photos,
        **asked,
    )


def _range(key: str, values: list[float]) -> tuple[float, float]:
    if len(values) == 2:
        return values[0], values[1]
    if len(values) == 1:
        return values[0], values[0]
    raise DataError(f"--{key} takes the least and the greatest value, or one value for always that.")


def _add_text_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--corpus", nargs="+", metavar="FILE", help="text files, a text each line (random characters)"
    )
    group.add_argument("--val-corpus", nargs="+", metavar="FILE", help="those of val (the same)")
    group.add_argument(
        "--length",
        type=int,
        nargs=2,
        default=(2, 20),
        metavar=("MIN", "MAX"),
        help="characters a line (2 20)",
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--characters", metavar="TEXT", help="characters to draw (digits and letters; all of a corpus)"
    )
    which.add_argument("--dict", type=Path, metavar="FILE", help="dictionary whose characters to draw")
    group.add_argument("--no-space", action="store_true", help="cut the lines of a corpus at spaces")
    group.add_argument(
        "--rich-in",
        nargs=2,
        metavar=("TEXT|FILE", "SHARE"),
        help="characters, such as look-alikes, that this share of random characters is drawn from, or this share "
        "of the pieces of a corpus is cut around",
    )
    group.add_argument(
        "--skip-undrawable", action="store_true", help="leave out characters that no font draws (an error)"
    )


def _add_font_arguments(group: argparse._ArgumentGroup) -> None:
    for name, what in (
        ("--fonts", ".ttf, .otf, .ttc (those of the packages captcha, matplotlib, mplfonts)"),
        ("--val-fonts", "those of val (the same as of train)"),
    ):
        group.add_argument(name, nargs="+", default=(), metavar="FILE|FOLDER|PACKAGE", help=what)
    group.add_argument(
        "--font-split", type=float, metavar="SHARE", help="keep this share of the font families for val alone"
    )


def _add_style_arguments(group: argparse._ArgumentGroup) -> None:
    style = LineStyle()
    group.add_argument("--height", type=int, default=style.height, metavar="PIXELS", help=f"({style.height})")
    group.add_argument("--width", type=int, metavar="PIXELS", help="one width for all (as wide as the text)")
    for key, (unit, what) in _RANGES.items():
        default = getattr(style, key)
        shown = "0.55 to 0.85 of the height" if default is None else f"{default[0]:g} {default[1]:g}"
        group.add_argument(f"--{key}", type=float, nargs="+", metavar=unit, help=f"{what} ({shown})")
    group.add_argument(
        "--inverted",
        type=float,
        default=style.inverted,
        metavar="SHARE",
        help=f"dark backgrounds ({style.inverted})",
    )
    group.add_argument(
        "--background-kinds", nargs="+", choices=BACKGROUNDS, help="kinds, each as likely (all)"
    )
    group.add_argument(
        "--backgrounds", metavar="FOLDER", help="photos to cut backgrounds from, as kind photo"
    )
