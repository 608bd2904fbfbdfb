"""Options that several commands share, spelt as PaddleOCR spells them."""

from __future__ import annotations

import argparse

from ppocr_ext.host.locate import ENVIRONMENT


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``-c FILE …`` (required, repeatable) and ``-o KEY=VALUE …`` (repeatable).

    ``args.config`` is the flat list of files, ``args.opt`` the flat list of ``KEY=VALUE`` strings.
    """
    parser.add_argument(
        "-c",
        "--config",
        action="extend",
        nargs="+",
        required=True,
        metavar="FILE",
        help="configuration; later files are laid over earlier ones",
    )
    parser.add_argument(
        "-o",
        "--opt",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="set single keys, e.g. -o Global.epoch_num=20 Optimizer.lr.learning_rate=0.0005",
    )


def add_host_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--host DIR``: ``args.host`` is the folder of a PaddleOCR checkout, or None."""
    parser.add_argument(
        "--host",
        metavar="DIR",
        help=f"a PaddleOCR checkout to run in (default: {ENVIRONMENT}, else the installed package)",
    )
