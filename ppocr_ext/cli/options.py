"""Options that several commands share, spelt as PaddleOCR spells them, and the config that they name."""

from __future__ import annotations

import argparse

from ppocr_ext.config import Config, load
from ppocr_ext.host.locate import ENVIRONMENT
from ppocr_ext.io.resources import find_config


def add_config_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add ``-c FILE …`` (repeatable; required by default) and ``-o KEY=VALUE …`` (repeatable).

    ``args.config`` is the flat list of files.
    """
    parser.add_argument(
        "-c",
        "--config",
        action="extend",
        nargs="+",
        required=required,
        default=None if required else [],
        metavar="FILE",
        help="configuration; later files are laid over earlier ones",
    )
    add_option_argument(
        parser, "set single keys, e.g. -o Global.epoch_num=20 Optimizer.lr.learning_rate=0.0005"
    )


def add_option_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``-o KEY=VALUE …`` (repeatable), which the help explains with ``text``; ``args.opt`` is the flat list."""
    parser.add_argument("-o", "--opt", action="extend", nargs="+", default=[], metavar="KEY=VALUE", help=text)


def add_host_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--host DIR``: ``args.host`` is the folder of a PaddleOCR checkout, or None."""
    parser.add_argument(
        "--host",
        metavar="DIR",
        help=f"a PaddleOCR checkout to run in (default: {ENVIRONMENT}, else the installed package)",
    )


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--trust-model``."""
    parser.add_argument(
        "--trust-model",
        action="store_true",
        help="run an exported file whose digest is not in model.json; a model is a program",
    )


def add_strict_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--strict``."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="end with exit code 2 if a sample is unusable or the config check warns",
    )


def read_config(args: argparse.Namespace, strict: bool = False) -> Config:
    """Return the config of ``-c`` and ``-o``; with ``strict``, Global.strict is true."""
    options = ["Global.strict=true"] if strict else []
    return load([find_config(path) for path in args.config], [*args.opt, *options])
