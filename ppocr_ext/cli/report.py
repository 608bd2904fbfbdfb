"""``ppocr-ext report``: one or several runs on one page."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

NAME = "report"
HELP = "draw one or several runs on one page: numbers, curves, evaluations, samples, data, configuration"
EPILOG = """\
examples:
  ppocr-ext report output/run                           # output/run/report.html, report_curves.png
  ppocr-ext report output/a output/b -o compare.html    # two runs over one another
  ppocr-ext report quickstart --title 'three runs'      # all runs in a folder

The page is one file that needs nothing else: send it, or open it in any browser. Runs that are still
going, were stopped or were killed are drawn as far as they got.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run (Global.save_model_dir), or a folder of runs"
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="the page (default: report.html in RUN; for several, in the current folder)",
    )
    parser.add_argument("--title", default="", help="over the page (default: the name of the folder)")
    parser.add_argument(
        "--no-png",
        action="store_true",
        help="write no picture of the curves beside the page (FILE_curves.png)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    from ppocr_ext.report.page import REPORT_FILE, write_report

    folder = Path(args.runs[0]) if len(args.runs) == 1 else Path()
    out = write_report(args.runs, args.out or folder / REPORT_FILE, args.title)
    print(f"report: {out}")
    if not args.no_png:
        _draw(args.runs, out.with_name(f"{out.stem}_curves.png"), args.title)
    return 0


def _draw(paths: list[str], out: Path, title: str) -> None:
    """The curves as a picture, for where a page cannot go; the page has its own."""
    if importlib.util.find_spec("matplotlib") is None:
        print(
            "no picture: matplotlib is not installed (pip install 'ppocr-ext[quickstart]')", file=sys.stderr
        )
        return
    from ppocr_ext.report.curves import draw_curves
    from ppocr_ext.report.panels import panels_of
    from ppocr_ext.report.run_data import find_runs, read_runs

    runs = [run for run in read_runs(find_runs(paths)) if panels_of([run.metrics])]
    if not runs:
        print("no picture: no step has been logged yet", file=sys.stderr)
        return
    print(f"curves: {draw_curves({run.name: run.folder for run in runs}, out, title)}")
