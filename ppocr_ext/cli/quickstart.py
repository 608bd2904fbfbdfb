"""``ppocr-ext quickstart``: watch a distillation, from nothing to a table of results."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ppocr_ext.cli.options import add_host_argument
from ppocr_ext.errors import ConfigError

NAME = "quickstart"
HELP = "watch a distillation from nothing to a table of results"
EPILOG = """\
what it does (on two CPU cores, about 15 minutes):
  draws CAPTCHAs of 4 to 6 digits, trains a small SVTRv2 teacher, trains a student of less than half its
  size alone, distils the same student for the same steps, and reads 1,000 held-out images with all three

examples:
  ppocr-ext quickstart
  ppocr-ext quickstart --minutes 40              # longer, and better
  ppocr-ext quickstart --out elsewhere --seed 2
  ppocr-ext quickstart --preset captcha/62classes --out captcha62    # an hour; [0-9a-zA-Z]

Ctrl-C stops after the step in progress; the same command goes on where it was.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add_host_argument(parser)
    parser.add_argument(
        "--out", metavar="DIR", default="quickstart", help="folder to work in (default: quickstart)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="about how long on two cores, in all (default: what the preset is made for, 15)",
    )
    parser.add_argument(
        "--preset",
        default="quickstart",
        help="what to train: quickstart, captcha/32x128, captcha/32x96 or captcha/62classes, folders of configs with "
        "teacher.yml, student.yml and distill.yml (default: quickstart)",
    )
    parser.add_argument(
        "--stages",
        nargs="+",
        choices=("teacher", "student", "distilled"),
        default=["teacher", "student", "distilled"],
        help="what to train and judge (default: all three)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the images and of the training (default: 1)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="to draw images (default: all cores)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    if args.minutes is not None and args.minutes <= 0:
        raise ConfigError(f"--minutes {args.minutes:g}: give a number above 0.")
    from ppocr_ext.recipes.quickstart import Settings, Stopped, run_quickstart, to_markdown
    from ppocr_ext.run.logs import set_up_console

    set_up_console()
    folder = Path(args.out)
    try:
        settings = Settings(args.preset, args.minutes, args.seed)
        rows = run_quickstart(folder, settings, args.processes, args.stages, args.host)
    except Stopped as stop:
        print(f"\nstopped and saved; go on with: {args.again}")
        return 128 + stop.signal
    print()
    print(to_markdown(rows))
    print(f"\nreport: {folder / 'report.html'}\ncurves: {folder / 'curves.png'}")
    print(f"predictions: {folder}/*/predictions.tsv")
    return 0
