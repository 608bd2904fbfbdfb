#!/usr/bin/env python3
"""Whether center loss makes look-alikes be confused less: trains, chooses, tests, prints a table.

Draws Chinese lines rich in look-alikes (fonts of the package mplfonts), trains a teacher, distils a student, exports
its centers, and fine-tunes the student for equal steps: plain, with center loss as PaddleOCR defines it, with that
of aligned frames, and with a margin. Weight and margin are chosen on fonts of their own; the fonts of testing are
read once, after that. Ctrl-C stops it; the same command goes on.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:] = [str(ROOT), *sys.path[1:], str(ROOT / "tools")]

from experiments.look_alikes import Experiment, Settings  # noqa: E402
from experiments.runs import experiment_parser, from_command_line  # noqa: E402


def main() -> int:
    """Run the experiment; the exit code."""
    defaults = Settings()
    parser = experiment_parser(__doc__, "lookalikes", "of the fine-tunings")
    for name, what in (
        ("lines", "to train on"),
        ("judged", "lines of each list to test on"),
        ("teacher_epochs", "of the teacher"),
        ("epochs", "of the distillation"),
        ("choice_epochs", "of each fine-tuning by which weight and margin are chosen"),
        ("tune_epochs", "of each that is tested"),
    ):
        default = getattr(defaults, name)
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=default, metavar="N", help=f"{what} ({default})"
        )
    parser.add_argument(
        "--weights", type=float, nargs="+", default=[*defaults.weights], help="of center loss, to choose from"
    )
    parser.add_argument(
        "--margins",
        type=float,
        nargs="+",
        default=[*defaults.margins],
        help="to choose from, in units of the median squared distance of look-alikes' centers",
    )

    def run(args: argparse.Namespace) -> object:
        named = {field.name: getattr(args, field.name) for field in fields(Settings)}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in named.items()}
        return Experiment(args.out, Settings(**values), args.at_once).run(processes=args.at_once)

    return from_command_line(parser, run)


if __name__ == "__main__":
    sys.exit(main())
