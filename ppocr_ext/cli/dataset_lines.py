"""``ppocr-ext make-dataset lines``: text lines drawn with fonts, from a corpus or from random characters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ppocr_ext.charset import Charset
from ppocr_ext.errors import DataError
from ppocr_ext.synth.lines.corpus import CorpusTexts
from ppocr_ext.synth.lines.fonts import FontFile, find_fonts, split_fonts
from ppocr_ext.synth.lines.line_source import LineOptions, LineSource, LineSplit, visible
from ppocr_ext.synth.lines.line_style import BACKGROUNDS, LineStyle

KIND = "lines"
HELP = "lines of text with your fonts, from a corpus or from random characters"
EXAMPLES = """\
examples:
  ppocr-ext make-dataset lines --out data/lines
  ppocr-ext make-dataset lines --out data/news --corpus news.txt --fonts fonts/ mplfonts --dict dict.txt
  ppocr-ext make-dataset lines --out data/lines --font-split 0.2 --rich-in 0OQ1Il 0.4 --width 320
  ppocr-ext make-dataset lines --out data/plain --rotation 0 --shear 0 --blur 0 --noise 0 --jpeg 0

A range takes two numbers, the least and the greatest, or one for both; 0 switches an effect off.
"""

# option -> metavar and help; the keys of `LineStyle`, which has the defaults
_RANGES = {
    "sizes": ("PIXELS", "font size"),
    "margin": ("SHARE", "space before and after the text, of the height"),
    "spacing": ("SHARE", "added between characters, of the font size"),
    "rotation": ("DEGREES", "turn; long lines turn less, to fit the height"),
    "shear": ("DEGREES", "slant of the strokes"),
    "perspective": ("SHARE", "how far the corners of the text move, of its height"),
    "blur": ("PIXELS", "standard deviation"),
    "shrink": ("FACTOR", "make the image smaller by this factor and enlarge it again; up to 1: not at all"),
    "noise": ("LEVELS", "standard deviation, of 255"),
    "jpeg": ("QUALITY", "of a JPEG compression"),
    "contrast": ("LEVELS", "difference in brightness of text and background, of 255"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the lines."""
    text = parser.add_argument_group("text")
    which, add = text.add_mutually_exclusive_group(), text.add_argument
    add("--corpus", nargs="+", metavar="FILE", help="text files, a text on each line (random characters)")
    add("--val-corpus", nargs="+", metavar="FILE", help="those of val (the same)")
    length = "characters of a line (2 20)"
    add("--length", type=int, nargs=2, default=(2, 20), metavar=("MIN", "MAX"), help=length)
    default = "characters to draw (digits and letters; all of a corpus)"
    which.add_argument("--characters", metavar="TEXT", help=default)
    which.add_argument("--dict", type=Path, metavar="FILE", help="dictionary whose characters to draw")
    add("--no-space", action="store_true", help="cut the lines of a corpus at spaces")
    rich_in = (
        "characters, such as look-alikes, that this share of random characters is drawn from, or this share of the "
        "pieces of a corpus is cut around"
    )
    add("--rich-in", nargs=2, metavar=("TEXT|FILE", "SHARE"), help=rich_in)
    add("--skip-undrawable", action="store_true", help="leave out characters that no font draws (an error)")
    add = parser.add_argument_group("fonts").add_argument
    for name, what in (
        ("--fonts", ".ttf, .otf, .ttc (those of the packages captcha, matplotlib, mplfonts)"),
        ("--val-fonts", "those of val (the same as of train)"),
    ):
        add(name, nargs="+", default=(), metavar="FILE|FOLDER|PACKAGE", help=what)
    split = "keep this share of the font families for val alone"
    add("--font-split", type=float, metavar="SHARE", help=split)
    _add_style_arguments(parser.add_argument_group("look"))


def _add_style_arguments(group: argparse._ArgumentGroup) -> None:
    add, style = group.add_argument, LineStyle()
    add("--height", type=int, default=style.height, metavar="PIXELS", help=f"({style.height})")
    add("--width", type=int, metavar="PIXELS", help="one width for all (as wide as the text)")
    for key, (unit, what) in _RANGES.items():
        default = getattr(style, key)
        shown = "0.55 to 0.85 of the height" if default is None else f"{default[0]:g} {default[1]:g}"
        add(f"--{key}", type=float, nargs="+", metavar=unit, help=f"{what} ({shown})")
    inverted = f"dark backgrounds ({style.inverted})"
    add("--inverted", type=float, default=style.inverted, metavar="SHARE", help=inverted)
    add(
        "--background-kinds",
        nargs="+",
        choices=BACKGROUNDS,
        help="kinds, each with the same probability (all)",
    )
    add("--backgrounds", metavar="FOLDER", help="photos to cut backgrounds from, as kind photo")


def make_source(args: argparse.Namespace) -> tuple[LineSource, Sequence[str] | None]:
    """Return what draws the lines, and the dictionary if one is given; print notes about the texts."""
    if args.val_corpus and not args.corpus:
        raise DataError("--val-corpus needs --corpus.", code="missing_option")
    dictionary = None if args.dict is None else Charset.from_file(args.dict).characters
    options = LineOptions(
        corpus=args.corpus or (),
        characters=args.characters if dictionary is None else "".join(visible(dictionary)),
        length=tuple(args.length),
        rich_in=_rich_in(args),
        skip_undrawable=args.skip_undrawable,
    )
    texts = options.texts(spaces=not args.no_space)
    val_texts = texts
    if isinstance(texts, CorpusTexts) and args.val_corpus:
        val_texts = replace(texts, files=tuple(args.val_corpus))
    fonts, val_fonts = _fonts(args)
    splits = {"train": LineSplit(texts, fonts), "val": LineSplit(val_texts, val_fonts)}
    drawn = {name: split for name, split in splits.items() if getattr(args, name)}
    style = {key: getattr(args, key) for key in ("height", "width", "inverted", *_RANGES)}
    style |= {"backgrounds": args.background_kinds, "photos": args.backgrounds}
    source = LineSource(drawn, LineStyle.from_options(style), args.seed)
    for note in source.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.corpus and not args.no_space:
        print("labels may have spaces: train with Global.use_space_char: true, or draw with --no-space")
    return source, dictionary


def _rich_in(args: argparse.Namespace) -> tuple[str, float] | None:
    if args.rich_in is None:
        return None
    named, share = args.rich_in
    try:
        return named, float(share)
    except ValueError:
        raise DataError(
            f"--rich-in {named} {share}: the share is not a number (such as 0.4).", code="bad_value"
        ) from None


def _fonts(args: argparse.Namespace) -> tuple[tuple[FontFile, ...], tuple[FontFile, ...]]:
    """Return the fonts of train and of val."""
    if args.val_fonts and args.font_split is not None:
        raise DataError(
            "--val-fonts and --font-split exclude each other: give one of them.", code="bad_value"
        )
    fonts = find_fonts(args.fonts)
    if args.font_split is not None:
        if not 0 < args.font_split < 1:
            raise DataError(
                f"--font-split {args.font_split:g}: the share must be between 0 and 1 (such as 0.2).",
                code="bad_value",
            )
        parts = split_fonts(fonts, {"train": 1 - args.font_split, "val": args.font_split}, args.seed)
        return parts["train"], parts["val"]
    return fonts, find_fonts(args.val_fonts) if args.val_fonts else fonts
