#!/usr/bin/env python3
"""Whether center loss makes look-alikes be confused less: trains, chooses, tests, prints a table.

Draws Chinese lines rich in look-alikes (fonts of the package mplfonts), trains a teacher, distils a student, exports
its centers, and fine-tunes the student for equal steps: plain, with center loss as PaddleOCR defines it, with that
of aligned frames, and with a margin. Weight and margin are chosen on fonts of their own; the fonts of testing are
read once, after that. Ctrl-C stops it; the same command goes on.
"""

import argparse
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

# The clone in place of this folder, and the folder above it last: these scripts hide nobody's modules.
sys.path[:] = [
    str(Path(__file__).resolve().parents[2]),
    *sys.path[1:],
    str(Path(__file__).resolve().parents[1]),
]

from experiments.look_alikes import Experiment, Settings  # noqa: E402
from experiments.runs import RunStopped  # noqa: E402
from ppocr_ext.errors import PPOCRExtError  # noqa: E402
from ppocr_ext.run.logs import set_up_console  # noqa: E402


def main() -> int:
    """Run the experiment; the exit code."""
    defaults = Settings()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("lookalikes"), metavar="DIR", help="(lookalikes)")
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
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of the fine-tunings (1 2 3)")
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
    parser.add_argument(
        "--at-once",
        type=int,
        default=2,
        help="runs at a time, one thread each; as many threads where one runs alone (2)",
    )
    args = parser.parse_args()
    if args.at_once < 1:
        parser.error("--at-once must be at least 1")
    named = {field.name: getattr(args, field.name) for field in fields(Settings)}
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in named.items()}
    settings = Settings(**values)
    set_up_console()
    try:
        print(f"\n{Experiment(args.out, settings, args.at_once).run(processes=args.at_once)}")
    except PPOCRExtError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, RunStopped):
        again = shlex.join([sys.executable, *sys.argv])
        print(f"\nstopped and saved; go on with: {again}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
