"""Write the report: one HTML page about one or several runs, and their curves as an SVG file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ppocr_ext.io.atomic import write_text
from ppocr_ext.report.curves import curves_file
from ppocr_ext.report.page_template import page
from ppocr_ext.report.run_folder import RunFolder, read_runs
from ppocr_ext.report.run_sections import configuration, curves, data, evaluations, predictions
from ppocr_ext.report.run_summary import summary

REPORT_FILE = "report.html"


def write_report(paths: Sequence[str | Path], out: Path, title: str = "") -> list[RunFolder]:
    """Write the page of the runs in ``paths`` to ``out``, atomically.

    Args:
        paths: run folders, or folders that contain some.
        out: the page.
        title: by default the name of the run, or of the folder that contains all runs.

    Returns:
        The runs, for :func:`write_curves`.

    Raises:
        DataError: a path contains no run.
    """
    runs = read_runs(paths)
    write_text(out, render(runs, title or _title(runs)))
    return runs


def write_curves(runs: Sequence[RunFolder], out: Path, title: str = "") -> bool:
    """Write the curves of ``runs`` to the SVG file ``out``; False if no step has been logged yet."""
    drawn = curves_file([(run.name, run.metrics) for run in runs], title)
    if drawn:
        write_text(out, drawn)
    return bool(drawn)


def _title(runs: Sequence[RunFolder]) -> str:
    folders = [run.folder.resolve() for run in runs]
    if len(folders) == 1:
        return folders[0].name
    shared = {folder.parent.name for folder in folders}
    return shared.pop() if len(shared) == 1 else f"{len(runs)} runs"


def render(runs: Sequence[RunFolder], title: str) -> str:
    """Return the page as HTML."""
    sections = (summary, curves, predictions, evaluations, data, configuration)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return page(title, count, "\n".join(section(runs) for section in sections))
