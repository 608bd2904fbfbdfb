"""``ppocr-ext report``: one or several runs on one page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ppocr_ext.io.atomic import check_writable

EPILOG = """\
examples:
  ppocr-ext report output/run                           # output/run/report.html, report_curves.svg
  ppocr-ext report output/a output/b -o compare.html    # two runs in the same plots
  ppocr-ext report quickstart --title comparison        # all runs in a folder

The page is a single file without links to others: send it, or open it in any browser. A run that is still
running, was stopped or was killed is shown up to its last record.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="run folder (Global.save_model_dir), or a folder of run folders",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="the page (default: report.html in RUN; for several runs, in the current folder)",
    )
    parser.add_argument("--title", default="", help="heading of the page (default: the name of the folder)")
    parser.add_argument(
        "--no-curves",
        action="store_true",
        help="do not write the curves to a file of their own (FILE_curves.svg); the page has them too",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from ppocr_ext.report.run_page import REPORT_FILE, write_curves, write_report

    folder = Path(args.runs[0]) if len(args.runs) == 1 else Path()
    out = Path(args.out or folder / REPORT_FILE)
    check_writable(out)
    runs = write_report(args.runs, out, args.title)
    print(f"report: {out}")
    if args.no_curves:
        return 0
    curves = out.with_name(f"{out.stem}_curves.svg")
    if write_curves(runs, curves, args.title):
        print(f"curves: {curves}")
    else:
        print("no curves: no step has been logged yet", file=sys.stderr)
    return 0
