"""``ppocr-ext quickstart``: train and compare a teacher, a student and a distilled student."""

from __future__ import annotations

import argparse
from pathlib import Path

from ppocr_ext.cli.options import add_host_argument, add_number
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.limits import usable_cores

EPILOG = """\
It draws CAPTCHAs of 4 to 6 digits, trains a small SVTRv2 teacher and, at the same time on another core, a student of
less than half its size alone, which has the labels of 250 images. Then the teacher also teaches the same student images
without labels, for the same steps. All three are evaluated on 1,000 held-out images. On two CPU cores this takes about
8 minutes. What the student alone prints is in student.log. Students of other presets have all labels.

examples:
  ppocr-ext quickstart
  ppocr-ext quickstart --minutes 40                     # longer, and better
  ppocr-ext quickstart --out elsewhere --seed 2
  ppocr-ext quickstart --preset captcha/62classes --out captcha62    # an hour; [0-9a-zA-Z]

Ctrl-C stops after the current step; the same command continues from there.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_host_argument(parser)
    parser.add_argument(
        "--out", metavar="DIR", default="quickstart", help="output folder (default: quickstart)"
    )
    add_number(
        parser,
        "--minutes",
        ValueRule("number", above=0),
        help="approximate time of all stages on two cores (default: the time of the preset, 8 for quickstart)",
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
        metavar="STAGE",
        help="what to train and evaluate: teacher, student, distilled (default: all three)",
    )
    parser.add_argument("--seed", type=int, default=1, help="for the images and the training (default: 1)")
    parser.add_argument(
        "--processes",
        type=int,
        default=usable_cores(),
        help="processes that draw images (default: one per core)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ppocr_ext.recipes.quickstart_job import QuickstartOptions, StopSignal, run_quickstart, to_markdown
    from ppocr_ext.run.logs import set_up_console

    set_up_console()
    folder = Path(args.out)
    options = QuickstartOptions(args.preset, args.minutes, args.seed)
    try:
        results = run_quickstart(folder, options, args.processes, args.stages, args.host)
    except StopSignal as stop:
        print(f"\nstopped and saved; continue with: {args.again}")
        return 128 + stop.args[0]
    print(f"\n{to_markdown(results)}")
    print(f"\nreport: {folder / 'report.html'}\ncurves: {folder / 'curves.svg'}")
    print(f"predictions: {folder}/*/predictions.tsv")
    return 0
