"""``ppocr-ext make-dataset``: images with labels and dictionary, made from nothing."""

from __future__ import annotations

import argparse

from ppocr_ext.cli import dataset_captcha, dataset_lines
from ppocr_ext.errors import DataError

NAME = "make-dataset"
HELP = "Draw labelled images to train and test a recogniser with."
EPILOG = "`ppocr-ext make-dataset lines --help` and `… captcha --help` have examples."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each kind of image; ``args.make`` is what makes it."""
    kinds = parser.add_subparsers(title="kinds", dest="kind", metavar="KIND", required=True)
    for module in (dataset_lines, dataset_captcha):
        kind = kinds.add_parser(
            module.KIND,
            help=module.HELP,
            description=f"Draw {module.HELP}.",
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(kind)
        kind.set_defaults(make=module.make)


def run(args: argparse.Namespace) -> int:
    """Make the images; the exit code."""
    try:
        return int(args.make(args))
    except OSError as error:
        raise DataError(
            f"{error.filename or args.out}: {error.strerror or error}.\nGo on with: {args.again}"
        ) from error
