"""The report: one HTML page of one or several runs, which needs nothing outside of itself."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from ppocr_ext import __version__
from ppocr_ext.io.atomic import write_text
from ppocr_ext.report.run_data import RunData, find_runs, read_runs
from ppocr_ext.report.sections import configuration, curves, data, evaluations, predictions
from ppocr_ext.report.style import STYLE
from ppocr_ext.report.summary import summary
from ppocr_ext.report.text import esc

REPORT_FILE = "report.html"
# Nothing is loaded and no script runs, whatever a label or a file name in the page says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(paths: Sequence[str | Path], out: str | Path, title: str = "") -> Path:
    """Write the page of the runs in ``paths`` to ``out``, atomically.

    Args:
        paths: run folders, or folders that hold some.
        out: the page.
        title: by default the name of the run, or of the folder that the runs share.

    Returns:
        ``out``.

    Raises:
        DataError: a path holds no run.
    """
    runs = read_runs(find_runs(paths))
    out = Path(out)
    write_text(out, render(runs, title or _title(runs)))
    return out


def _title(runs: Sequence[RunData]) -> str:
    folders = [run.folder.resolve() for run in runs]
    if len(folders) == 1:
        return folders[0].name
    shared = {folder.parent.name for folder in folders}
    return shared.pop() if len(shared) == 1 else f"{len(runs)} runs"


def render(runs: Sequence[RunData], title: str) -> str:
    """The page as HTML."""
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    body = "\n".join(
        section(runs) for section in (summary, curves, predictions, evaluations, data, configuration)
    )
    return page(title, count, body)


def page(title: str, subtitle: str, body: str) -> str:
    """A page of ours around ``body``, which is HTML already."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{esc(title)}</title>
<style>{STYLE}</style>
</head>
<body><main>
<h1>{esc(title)}</h1>
<p class="sub">{esc(subtitle)} · written {now}</p>
{body}
<footer>ppocr-ext {__version__}</footer>
</main></body>
</html>
"""
