"""``ppocr-ext make-dataset captcha``: pictures of digits or other characters by the library captcha."""

from __future__ import annotations

import argparse

from ppocr_ext.cli.dataset_options import FOLDER, add_folder_arguments, report
from ppocr_ext.synth.captcha import LIBRARY_FONT_SIZES, CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

KIND = "captcha"
HELP = "pictures of 4 to 6 digits (or any characters) by the library captcha"
EPILOG = f"""\
examples:
  ppocr-ext make-dataset captcha --out data/captcha
  ppocr-ext make-dataset captcha --out data/letters --characters 0123456789abcdefghijklmnopqrstuvwxyz
  ppocr-ext make-dataset captcha --out data/test --train 0 --val 1000 --seed 7

{FOLDER}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_folder_arguments(parser)
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
        help="library: the library's own drawing; fast: the same pictures but for a few edge pixels, five times "
        "as fast (library)",
    )


def make(args: argparse.Namespace) -> int:
    """Make the folder; the exit code."""
    options = CaptchaOptions(
        characters=args.characters,
        length=tuple(args.length),
        width=args.width,
        height=args.height,
        fonts=tuple(args.fonts),
        font_sizes=tuple(args.font_sizes),
        painter=args.painter,
    )
    wanted = DatasetFolder(CaptchaSource(options, args.seed), args.train, args.val, args.format)
    report(args.out, make_folder(args.out, wanted, args.processes))
    return 0
