"""Types of options of the benchmark's command."""

from __future__ import annotations

import argparse
from pathlib import Path

SECTIONS = ("step", "eval", "center", "memory", "data")  # of `benchmark.py all`


def positive(text: str, least: int = 1) -> int:
    """Return a number that is at least 1."""
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return number


def several(text: str) -> int:
    """Return a number that is at least 2."""
    return positive(text, 2)


def picture(text: str) -> str:
    """Return the name of a picture whose folder exists."""
    if Path(text).suffix not in (".png", ".svg") or not Path(text).resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} does not end in .png or .svg, or its folder does not exist")
    return text
