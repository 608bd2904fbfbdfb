"""``ppocr-ext make-dataset captcha``: pictures of digits or other characters by the library captcha."""

from __future__ import annotations

import argparse

from ppocr_ext.synth.captcha import LIBRARY_FONT_SIZES, CaptchaOptions, CaptchaSource

KIND = "captcha"
HELP = "pictures of 4 to 6 digits (or any characters) by the library captcha"
EXAMPLES = """\
examples:
  ppocr-ext make-dataset captcha --out data/captcha
  ppocr-ext make-dataset captcha --out data/letters --characters 0123456789abcdefghijklmnopqrstuvwxyz
  ppocr-ext make-dataset captcha --out data/test --train 0 --val 1000 --seed 7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the CAPTCHAs."""
    add = parser.add_argument
    add("--characters", default="0123456789", metavar="TEXT", help="characters to draw from (0123456789)")
    length = "characters of an image (4 6)"
    add("--length", type=int, nargs=2, default=(4, 6), metavar=("MIN", "MAX"), help=length)
    add("--width", type=int, default=160, metavar="PIXELS", help="image width (160)")
    height = "image height (60); the noise has the same size in any image: at 90×30 it hides the digits"
    add("--height", type=int, default=60, metavar="PIXELS", help=height)
    add(
        "--fonts",
        nargs="+",
        default=(),
        metavar="TTF",
        help="font files (the library's: Latin letters, digits)",
    )
    sizes = f"font sizes, one drawn for each character ({' '.join(map(str, LIBRARY_FONT_SIZES))})"
    add("--font-sizes", type=int, nargs="+", default=LIBRARY_FONT_SIZES, metavar="PIXELS", help=sizes)
    painter = (
        "library: the library's own drawing; fast: the same pictures except for a few edge pixels, five times as "
        "fast (library)"
    )
    add("--painter", choices=("library", "fast"), default="library", help=painter)


def make_source(args: argparse.Namespace) -> tuple[CaptchaSource, None]:
    """Return what draws the images; the dictionary is its characters."""
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
