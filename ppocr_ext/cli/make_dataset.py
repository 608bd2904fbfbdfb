"""``ppocr-ext make-dataset``: draw images with labels and a dictionary.

``lines`` draws text with fonts, from a corpus or from random characters; ``captcha`` uses the library captcha.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ppocr_ext.charset import Charset
from ppocr_ext.cli.options import add_number
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.errors import DataError
from ppocr_ext.limits import usable_cores
from ppocr_ext.messages import command_line, for_people
from ppocr_ext.synth.captcha import LIBRARY_FONT_SIZES, CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder
from ppocr_ext.synth.lines.corpus import CorpusTexts
from ppocr_ext.synth.lines.fonts import FontFile, find_fonts, split_fonts
from ppocr_ext.synth.lines.line_source import LineOptions, LineSource, LineSplit, visible
from ppocr_ext.synth.lines.painting import BACKGROUNDS, LineStyle

EPILOG = """\
examples:
  ppocr-ext make-dataset lines --out data/lines --train 1000
  ppocr-ext make-dataset captcha --out data/captcha
  ppocr-ext make-dataset lines --help                # the options of a kind, and more examples
"""
_FOLDER = """
DIR then holds
  train/0000/000000.png …   images, a thousand to a folder
  train_list.txt            image<tab>label, one on each line (Train.dataset.label_file_list)
  val_list.txt              the same for evaluation; none of its images is in train
  dict.txt                  one character on each line (Global.character_dict_path)
  samples.png               forty of them with their labels, to look at
  dataset.json              the parameters, and the SHA-256 of all files

The same parameters give the same files, with any number of processes. If files are missing, run the
command again: it draws them. A DIR that holds something else is not changed.

To train on it: ppocr-ext init DIR
"""
_LINES = "lines of text with your fonts, from a corpus or from random characters"
_LINE_EXAMPLES = """\
examples:
  ppocr-ext make-dataset lines --out data/lines
  ppocr-ext make-dataset lines --out data/news --corpus news.txt --fonts fonts/ mplfonts --dict dict.txt
  ppocr-ext make-dataset lines --out data/lines --font-split 0.2 --rich-in 0OQ1Il 0.4 --width 320
  ppocr-ext make-dataset lines --out data/plain --rotation 0 --shear 0 --blur 0 --noise 0 --jpeg 0

A range takes two numbers, the least and the greatest, or one for both; 0 switches an effect off.
"""
_CAPTCHAS = "pictures of 4 to 6 digits (or any characters) by the library captcha"
_CAPTCHA_EXAMPLES = """\
examples:
  ppocr-ext make-dataset captcha --out data/captcha
  ppocr-ext make-dataset captcha --out data/letters --characters 0123456789abcdefghijklmnopqrstuvwxyz
  ppocr-ext make-dataset captcha --out data/test --train 0 --val 1000 --seed 7
"""
# Option -> metavar and help. The options are the keys of `LineStyle`, which has their defaults.
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
    """Add a subcommand for each kind of image.

    It sets ``args.make_source``, a function that returns the source of the images and the dictionary.
    """
    kinds = parser.add_subparsers(title="kinds", dest="kind", metavar="KIND", required=True)
    for name, summary, examples, make_source, *groups in (
        (
            "lines",
            _LINES,
            _LINE_EXAMPLES,
            _line_source,
            _add_text_arguments,
            _add_font_arguments,
            _add_look_arguments,
        ),
        ("captcha", _CAPTCHAS, _CAPTCHA_EXAMPLES, _captcha_source, _add_captcha_arguments),
    ):
        kind = kinds.add_parser(
            name,
            help=summary,
            description=f"Draw {summary}.",
            epilog=examples + _FOLDER,
            formatter_class=parser.formatter_class,
        )
        add = kind.add_argument
        add("--out", type=Path, required=True, metavar="DIR", help="folder to make")
        add("--train", type=int, default=10_000, metavar="N", help="train images (10000)")
        add("--val", type=int, default=1_000, metavar="N", help="evaluation images (1000)")
        add("--seed", type=int, default=1, metavar="N", help="another seed, other images (1)")
        add("--format", choices=("png", "jpg"), default="png", help="image files (png)")
        add(
            "--processes",
            type=int,
            default=usable_cores(),
            metavar="N",
            help="processes that draw (one for each processor core)",
        )
        for add_options in groups:
            add_options(kind)
        kind.set_defaults(make_source=make_source)


def run(args: argparse.Namespace) -> int:
    """Write the folder; return the exit code."""
    try:
        source, characters = args.make_source(args)
        wanted = DatasetFolder(source, args.train, args.val, args.format, characters)
        started = time.perf_counter()
        drawn = make_folder(args.out, wanted, args.processes)
        seconds = time.perf_counter() - started
    except OSError as error:
        raise DataError(
            f"{error.filename or args.out}: {error.strerror or error}.\nTo continue: {args.again}",
            code="file_error",
        ) from error
    found = args.train + args.val - drawn
    if drawn:
        existed = f", {found:,} existed" if found else ""
        print(f"{drawn:,} images drawn in {seconds:.1f} s ({drawn / seconds:,.0f} images/s){existed}")
    else:
        print(f"all {found:,} images exist; nothing to do")
    print(f"{args.out}: train_list.txt, val_list.txt, dict.txt; look at {args.out / 'samples.png'}")
    print(f"to train on it: {command_line('init', args.out)}")
    return 0


def _add_text_arguments(parser: argparse.ArgumentParser) -> None:
    text = parser.add_argument_group("text")
    which = text.add_mutually_exclusive_group()
    add = text.add_argument
    add("--corpus", nargs="+", metavar="FILE", help="text files, a text on each line (random characters)")
    add("--val-corpus", nargs="+", metavar="FILE", help="those of val (the same)")
    add(
        "--length",
        type=int,
        nargs=2,
        default=(2, 20),
        metavar=("MIN", "MAX"),
        help="characters of a line (2 20)",
    )
    which.add_argument(
        "--characters", metavar="TEXT", help="characters to draw (digits and letters; all of a corpus)"
    )
    which.add_argument("--dict", type=Path, metavar="FILE", help="dictionary whose characters to draw")
    add("--no-space", action="store_true", help="cut the lines of a corpus at spaces")
    add(
        "--rich-in",
        nargs=2,
        metavar=("TEXT|FILE", "SHARE"),
        help=(
            "characters, such as look-alikes, that this share of random characters is drawn from, or this share of the "
            "pieces of a corpus is cut around"
        ),
    )
    add("--skip-undrawable", action="store_true", help="leave out characters that no font draws (an error)")


def _add_font_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("fonts").add_argument
    for name, what in (
        (
            "--fonts",
            "files, folders or packages with .ttf, .otf, .ttc (those of the packages captcha, matplotlib, mplfonts)",
        ),
        ("--val-fonts", "those of val (the same as of train)"),
    ):
        add(name, nargs="+", default=(), metavar="FONT", help=what)
    add_number(
        parser,
        "--font-split",
        ValueRule("number", least=0.01, most=0.99),
        metavar="SHARE",
        help="use this share of the font families only for val",
    )


def _add_look_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("look").add_argument
    style = LineStyle()
    add("--height", type=int, default=style.height, metavar="PIXELS", help=f"({style.height})")
    add("--width", type=int, metavar="PIXELS", help="one width for all (as wide as the text)")
    for key, (unit, what) in _RANGES.items():
        default = getattr(style, key)
        shown = "0.55 to 0.85 of the height" if default is None else f"{default[0]:g} {default[1]:g}"
        add(f"--{key}", type=float, nargs="+", metavar=unit, help=f"{what} ({shown})")
    add(
        "--inverted",
        type=float,
        default=style.inverted,
        metavar="SHARE",
        help=f"dark backgrounds ({style.inverted})",
    )
    add(
        "--background-kinds",
        nargs="+",
        choices=BACKGROUNDS,
        metavar="KIND",
        help=f"each with the same probability: {', '.join(BACKGROUNDS)} (all)",
    )
    add("--backgrounds", metavar="FOLDER", help="photos to cut backgrounds from, as kind photo")


def _line_source(args: argparse.Namespace) -> tuple[LineSource, Sequence[str] | None]:
    """Return the source of the lines, and the dictionary of ``--dict``; print notes about the texts."""
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
        print(for_people(f"note: {note}"), file=sys.stderr)
    if args.corpus and not args.no_space:
        print("labels may have spaces: train with Global.use_space_char: true, or draw with --no-space")
    return source, dictionary


def _rich_in(args: argparse.Namespace) -> tuple[str, float] | None:
    if args.rich_in is None:
        return None
    characters, share = args.rich_in
    try:
        return characters, float(share)
    except ValueError:
        raise DataError(
            f"--rich-in {characters} {share}: the share is not a number (such as 0.4).", code="bad_value"
        ) from None


def _fonts(args: argparse.Namespace) -> tuple[tuple[FontFile, ...], tuple[FontFile, ...]]:
    """Return the fonts of train and of val."""
    if args.val_fonts and args.font_split is not None:
        raise DataError(
            "--val-fonts and --font-split exclude each other: give one of them.", code="bad_value"
        )
    fonts = find_fonts(args.fonts)
    if args.font_split is not None:
        parts = split_fonts(fonts, {"train": 1 - args.font_split, "val": args.font_split}, args.seed)
        return parts["train"], parts["val"]
    return fonts, find_fonts(args.val_fonts) if args.val_fonts else fonts


def _add_captcha_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the CAPTCHAs."""
    add = parser.add_argument
    add("--characters", default="0123456789", metavar="TEXT", help="characters to draw from (0123456789)")
    add(
        "--length",
        type=int,
        nargs=2,
        default=(4, 6),
        metavar=("MIN", "MAX"),
        help="characters of an image (4 6)",
    )
    add("--width", type=int, default=160, metavar="PIXELS", help="image width (160)")
    add(
        "--height",
        type=int,
        default=60,
        metavar="PIXELS",
        help="image height (60); the noise has the same size in any image: at 90×30 it hides the digits",
    )
    add(
        "--fonts",
        nargs="+",
        default=(),
        metavar="TTF",
        help="font files (the library's: Latin letters, digits)",
    )
    add(
        "--font-sizes",
        type=int,
        nargs="+",
        default=LIBRARY_FONT_SIZES,
        metavar="PIXELS",
        help=f"font sizes, one drawn for each character ({' '.join(map(str, LIBRARY_FONT_SIZES))})",
    )
    add(
        "--painter",
        choices=("library", "fast"),
        default="library",
        help=(
            "library: the library's own drawing; fast: the same pictures except for a few edge pixels, five times as "
            "fast (library)"
        ),
    )


def _captcha_source(args: argparse.Namespace) -> tuple[CaptchaSource, None]:
    """Return the source of the images; its characters are the dictionary."""
    options = CaptchaOptions(
        characters=args.characters,
        length=tuple(args.length),
        width=args.width,
        height=args.height,
        fonts=tuple(args.fonts),
        font_sizes=tuple(args.font_sizes),
        painter=args.painter,
    )
    return CaptchaSource(options, args.seed), None
