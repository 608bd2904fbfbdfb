#!/usr/bin/env python3
"""Measure what training, centers, reading and the check of label files cost, as ratios within one run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.table import SECTIONS

HELP = (
    "measure what a training step, evaluation, compiled networks and the export of centers cost, how fast an exported "
    "recogniser reads, and how fast label files are checked"
)
EPILOG = """\
examples:
  python tools/benchmark.py all --peer /path/to/PaddleOCR --out measured
  python tools/benchmark.py all --only step memory --peer /path/to/PaddleOCR --out measured
  python tools/benchmark.py step --size tiny --batch 64
  python tools/benchmark.py step --size full --batch 16 --peer /path/to/PaddleOCR
  python tools/benchmark.py step --size full --batch 16 --processes 2
  python tools/benchmark.py engine --size full --batch 16 --threads 2
  python tools/benchmark.py infer --size full --peer /path/to/PaddleOCR --chart speed.png
  python tools/benchmark.py labels --lines 1000 10000 100000 1000000 10000000 --chart labels.png
"""
_BAD = 1  # exit code: done, and the verdict is bad


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


# options: what argparse is given
_SIZE = {
    "choices": ("tiny", "full"),
    "default": "tiny",
    "help": "quickstart's networks, or full size (default: %(default)s)",
}
_THREADS = {"type": positive, "help": "CPU threads (default: OMP_NUM_THREADS, else 1, as Paddle has it)"}
_PEER = {"metavar": "DIR", "help": "a PaddleOCR checkout to measure too"}
_CHART = {"type": picture, "metavar": "FILE", "help": "draw it: .png, .svg (needs matplotlib)"}


def _one(default: int, text: str, metavar: str = "N") -> dict[str, Any]:
    return {"type": positive, "default": default, "metavar": metavar, "help": f"{text} (default: {default})"}


def _several(default: Sequence[int], text: str, metavar: str = "N") -> dict[str, Any]:
    text = f"{text} (default: {' '.join(map(str, default))})"
    return {"type": positive, "nargs": "+", "default": default, "metavar": metavar, "help": text}


_BATCH, _ROUNDS = _one(16, "images in a batch"), _one(5, "measured rounds; the median counts")
_BEST = _one(3, "rounds; the fastest one counts")
_NETWORKS = {"--size": _SIZE, "--batch": _BATCH, "--threads": _THREADS, "--rounds": _ROUNDS}
# command: what it measures, and its options; it calls `measure_COMMAND` of the module of its name with them
_COMMANDS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "all": (
        "step, evaluation, centers, memory, cost against data: one table, one chart",
        {
            "--size": _SIZE | {"default": "full"},
            "--batch": _BATCH,
            "--threads": _one(2, "CPU threads; as many processes share a step in some rows"),
            "--rounds": _one(5, "measured rounds of steps; of other work three at most"),
            "--lines": _several((1000, 10_000), "of the label files; the label check: ten times as many too"),
            "--only": {"choices": SECTIONS, "nargs": "+", "default": SECTIONS, "help": "default: all"},
            "--peer": _PEER,
            "--out": {
                "metavar": "DIR",
                "help": "write performance.json, .md and .png (needs matplotlib); what was measured before stays",
            },
            "--redraw": {
                "action": "store_true",
                "help": "measure nothing: table and chart of the performance.json in --out",
            },
        },
    ),
    "step": (
        "seconds a distillation step",
        {
            **_NETWORKS,
            "--image": {
                "type": positive,
                "nargs": 2,
                "metavar": ("H", "W"),
                "help": "default: 32 128, full: 48 320",
            },
            "--peer": _PEER,
            "--processes": {
                "type": several,
                "metavar": "N",
                "help": "compare, on the CPU, one process with N threads and N processes with one thread; "
                "--batch is of all",
            },
        },
    ),
    "engine": ("seconds and memory of compiled networks", _NETWORKS),
    "infer": (
        "images/s and latency of exported recognisers, by engine",
        {
            "--size": _SIZE,
            "--batch": _several((1, 16), "images", "B"),
            "--threads": _several((1, 2), "CPU threads of an engine"),
            "--images": _one(48, "that Recognizer.read reads in a call"),
            "--rounds": _ROUNDS,
            "--peer": _PEER,
            "--chart": _CHART,
        },
    ),
    "labels": (
        "lines/s and memory of the check of label files, by their length",
        {
            "--lines": _several([10**power for power in range(3, 7)], "of each label file"),
            "--rounds": _BEST,
            "--chart": _CHART,
        },
    ),
}


def build_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(
        description=HELP, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(dest="what", required=True)
    for name, (text, options) in _COMMANDS.items():
        command = kinds.add_parser(name, help=text)
        for option, given in options.items():
            command.add_argument(option, **given)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    from ppocr_ext.errors import PPOCRExtError

    options = vars(build_parser().parse_args(argv))
    if isinstance(options.get("threads"), int):
        os.environ["OMP_NUM_THREADS"] = str(options["threads"])  # read once, when Paddle is imported
    try:
        return _measure(**options)
    except PPOCRExtError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def _measure(what: str, **options: Any) -> int:
    """Measure, print the table and draw the chart; the exit code."""
    from benchmarks import charts
    from benchmarks.fresh import called, in_fresh_process

    chart = options.pop("chart", None)
    if chart is not None:
        charts.require_matplotlib("--chart")
    if what not in ("all", "infer"):
        options.pop("threads", None)
    module = "whole" if what == "all" else what.replace("-", "_")
    if options.get("processes") is not None:
        module = "processes"
    work = f"benchmarks.{module}:measure_{module}"
    options = {name: value for name, value in options.items() if value is not None}
    if module == "step":  # others start processes of their own
        found = in_fresh_process("benchmarks.fresh:table_of", {"work": work, "options": options})
        table, agrees = found["table"], found["agrees"]
    else:
        costs = called(work, options)
        table, agrees = costs.to_markdown(), costs.agrees
    print(table)
    if chart is not None:
        getattr(charts, f"draw_{module}")(costs, Path(chart))
    return 0 if agrees else _BAD


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # The clone in place of this folder, which comes last: the scripts in it hide nobody's modules.
    sys.path[:] = [str(here.parent), *sys.path[1:], str(here)]
    sys.exit(main())
