"""``ppocr-ext make-dataset``: images with labels and dictionary, made from nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.data.captcha import LIBRARY_FONT_SIZES, CaptchaOptions
from ppocr_ext.data.captcha_files import CaptchaFolder, default_processes, make_captcha_folder
from ppocr_ext.errors import DataError

NAME = "make-dataset"
HELP = "Draw labelled images to train and test a recogniser with."
EPILOG = "`ppocr-ext make-dataset captcha --help` has examples."

_CAPTCHA_HELP = "pictures of 4 to 6 digits (or any characters) by the library captcha"
_CAPTCHA_EPILOG = """\
examples:
  ppocr-ext make-dataset captcha --out data/captcha
  ppocr-ext make-dataset captcha --out data/letters --characters 0123456789abcdefghijklmnopqrstuvwxyz
  ppocr-ext make-dataset captcha --out data/test --train 0 --val 1000 --seed 7

DIR then holds
  train/0000/000000.png …   images, a thousand to a folder
  train_list.txt            image<tab>label, a line each (Train.dataset.label_file_list)
  val_list.txt              the same for evaluation; none of its images is in train
  dict.txt                  a character a line (Global.character_dict_path)
  samples.png               forty of them with their labels, to look at
  dataset.json              the parameters, and the SHA-256 of all files

The same parameters give the same files, whatever the number of processes. Run again, the command makes
what is missing. A DIR that holds something else is left alone.

To train on it: -o Train.dataset.data_dir=DIR Train.dataset.label_file_list=[DIR/train_list.txt]
  Eval.dataset.data_dir=DIR Eval.dataset.label_file_list=[DIR/val_list.txt] Global.character_dict_path=DIR/dict.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each kind of image; ``args.make`` is what makes it."""
    kinds = parser.add_subparsers(title="kinds", dest="kind", metavar="KIND", required=True)
    captcha = kinds.add_parser(
        "captcha",
        help=_CAPTCHA_HELP,
        description=f"Draw {_CAPTCHA_HELP}.",
        epilog=_CAPTCHA_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_captcha_arguments(captcha)
    captcha.set_defaults(make=_make_captcha)


def run(args: argparse.Namespace) -> int:
    """Make the images; the exit code."""
    try:
        return int(args.make(args))
    except OSError as error:
        raise DataError(
            f"{error.filename or args.out}: {error.strerror or error}. The same command goes on from here."
        ) from error


def _add_captcha_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--train", type=int, default=10_000, metavar="N", help="train images (10000)")
    parser.add_argument("--val", type=int, default=1_000, metavar="N", help="evaluation images (1000)")
    parser.add_argument(
        "--characters", default="0123456789", metavar="TEXT", help="characters to draw from (0123456789)"
    )
    parser.add_argument(
        "--length",
        type=int,
        nargs=2,
        default=(4, 6),
        metavar=("MIN", "MAX"),
        help="characters an image (4 6)",
    )
    parser.add_argument("--width", type=int, default=160, metavar="PIXELS", help="image width (160)")
    parser.add_argument(
        "--height",
        type=int,
        default=60,
        metavar="PIXELS",
        help="image height (60); the noise does not shrink with the image: at 90×30 it hides the digits",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed, other images (1)")
    parser.add_argument("--format", choices=("png", "jpg"), default="png", help="image files (png)")
    parser.add_argument(
        "--fonts",
        nargs="+",
        default=(),
        metavar="TTF",
        help="font files (the library's: Latin letters, digits)",
    )
    parser.add_argument(
        "--font-sizes",
        type=int,
        nargs="+",
        default=LIBRARY_FONT_SIZES,
        metavar="PIXELS",
        help=f"font sizes, one drawn for each character ({' '.join(map(str, LIBRARY_FONT_SIZES))})",
    )
    parser.add_argument(
        "--painter",
        choices=("library", "fast"),
        default="library",
        help="library: the library's own drawing; fast: the same pictures but for a few edge pixels, four times "
        "as fast (library)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=default_processes(),
        metavar="N",
        help="processes that draw (one for each processor core)",
    )


def _make_captcha(args: argparse.Namespace) -> int:
    options = CaptchaOptions(
        characters=args.characters,
        length=tuple(args.length),
        width=args.width,
        height=args.height,
        fonts=tuple(args.fonts),
        font_sizes=tuple(args.font_sizes),
        painter=args.painter,
    )
    wanted = CaptchaFolder(options, args.train, args.val, args.seed, args.format)
    made = make_captcha_folder(args.out, wanted, args.processes)
    if made.drawn:
        speed = made.drawn / made.seconds
        found = f", {made.found:,} were there" if made.found else ""
        print(f"{made.drawn:,} images drawn in {made.seconds:.1f} s ({speed:,.0f} images/s){found}")
    else:
        print(f"all {made.found:,} images are there; nothing to do")
    print(f"{args.out}: train_list.txt, val_list.txt, dict.txt; look at {args.out / 'samples.png'}")
    return 0
