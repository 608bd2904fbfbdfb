#!/usr/bin/env python3
"""Measure what training, centers, reading and the label check cost, as ratios within one run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import SECTIONS

HELP = "measure training steps, evaluation, compiled networks, center export, exported recognisers, and the label check"
EPILOG = """\
examples:
  python tools/benchmark.py all --peer /path/to/PaddleOCR --out measured
  python tools/benchmark.py all --only step memory --peer /path/to/PaddleOCR --out measured
  python tools/benchmark.py step --size full --batch 16 --peer /path/to/PaddleOCR
  python tools/benchmark.py engine --size full --batch 16 --threads 2
  python tools/benchmark.py infer --size full --peer /path/to/PaddleOCR
  python tools/benchmark.py official --batch 16 --peer /path/to/PaddleOCR --lines images
  python tools/benchmark.py labels --lines 1000 10000 100000 1000000 10000000
"""
_BAD = 1  # exit code: the results disagree


def positive(text: str) -> int:
    """Return a number that is at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


# options: the keyword arguments for argparse
_SIZE = {
    "choices": ("tiny", "full"),
    "default": "tiny",
    "help": "quickstart's networks, or full size (%(default)s)",
}
_THREADS = {"type": positive, "help": "CPU threads (default: OMP_NUM_THREADS, else 1, as in Paddle)"}
_IMAGE = {"type": positive, "nargs": 2, "metavar": ("H", "W"), "help": "default: 32 128, full: 48 320"}
_PEER = {"metavar": "DIR", "help": "a PaddleOCR checkout to measure too"}


def _one(default: int, text: str) -> dict[str, Any]:
    return {"type": positive, "default": default, "metavar": "N", "help": f"{text} (default: {default})"}


def _several(default: Sequence[int], text: str) -> dict[str, Any]:
    text = f"{text} (default: {' '.join(map(str, default))})"
    return {"type": positive, "nargs": "+", "default": default, "metavar": "N", "help": text}


_BATCH, _ROUNDS = _one(16, "images in a batch"), _one(5, "measured rounds; the median counts")
_NETWORKS = {"--size": _SIZE, "--batch": _BATCH, "--threads": _THREADS, "--rounds": _ROUNDS}
# Each command: what it measures, and its options. It calls `measure_COMMAND` of the module with its name.
_COMMANDS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "all": (
        "step, evaluation, centers, memory, cost by the number of lines: one table, one chart",
        {
            "--size": _SIZE | {"default": "full"},
            "--batch": _BATCH,
            "--threads": _one(2, "CPU threads; in some rows as many processes share a step"),
            "--rounds": _one(5, "measured rounds of steps; at most three of other work"),
            "--lines": _several(
                (1000, 10_000), "of the label files; the label check: also ten times as many"
            ),
            "--only": {"choices": SECTIONS, "nargs": "+", "default": SECTIONS, "help": "default: all"},
            "--peer": _PEER,
            "--out": {"metavar": "DIR", "help": "write performance.json, .md, and .png (needs matplotlib)"},
        },
    ),
    "step": (
        "seconds a distillation step",
        {**_NETWORKS, "--image": _IMAGE, "--peer": _PEER},
    ),
    "engine": ("seconds and memory of compiled networks", _NETWORKS),
    "infer": (
        "images/s and latency of exported recognisers, by engine",
        {
            "--size": _SIZE,
            "--batch": _several((1, 16), "images"),
            "--threads": _several((1, 2), "CPU threads of an engine"),
            "--images": _one(48, "that Recognizer.read reads in a call"),
            "--rounds": _ROUNDS,
            "--peer": _PEER,
        },
    ),
    "official": (
        "networks of PP-OCR: seconds and memory of a fine-tuning step, live and with `fused: true`; images/s",
        {
            "--networks": {
                "nargs": "+",
                "metavar": "NAME",
                "default": ("v4_mobile", "v6_small"),
                "help": "of pp-ocr/",
            },
            "--batch": _BATCH,
            "--image": {**_IMAGE, "help": "of a step (default: 48 192)"},
            "--threads": _one(1, "CPU threads of a step; if several, as many processes share some steps"),
            "--rounds": _ROUNDS,
            "--peer": _PEER,
            "--lines": {
                "nargs": "+",
                "metavar": "IMAGES",
                "help": "read them too, as in `ppocr-ext predict`",
            },
            "--count": _one(96, "images to read"),
        },
    ),
    "labels": (
        "lines/s and memory of the check of label files, by their length",
        {
            "--lines": _several([10**power for power in range(3, 7)], "of each label file"),
            "--rounds": _one(3, "rounds; the fastest one counts"),
        },
    ),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(
        description=HELP, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="what", required=True)
    for name, (text, options) in _COMMANDS.items():
        command = kinds.add_parser(name, help=text)
        for option, arguments in options.items():
            command.add_argument(option, **arguments)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    from ppocr_ext.errors import PPOCRExtError

    options = vars(build_parser().parse_args(argv))
    if isinstance(options.get("threads"), int):
        os.environ["OMP_NUM_THREADS"] = str(options["threads"])  # Paddle reads it once, on import
    try:
        return _measure(**options)
    except PPOCRExtError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _measure(what: str, **options: Any) -> int:
    from benchmarks.fresh import in_fresh_process, table_of

    if what not in ("all", "infer"):
        options.pop("threads", None)
    module = "whole" if what == "all" else what
    options = {name: value for name, value in options.items() if value is not None}
    work = {"work": f"benchmarks.{module}:measure_{module}", "options": options}
    # The other commands start their own processes.
    result = in_fresh_process("benchmarks.fresh:table_of", work) if what == "step" else table_of(**work)
    print(result["table"])
    return 0 if result["agrees"] else _BAD


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # The clone instead of this folder, which comes last: its scripts must not hide other modules.
    sys.path[:] = [str(here.parent), *sys.path[1:], str(here)]
    sys.exit(main())
