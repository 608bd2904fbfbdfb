"""Write the report: one HTML page about one or several runs, and their curves as an SVG file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.io.atomic import write_text
from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.curves import best_point, color_mark, curves_file
from ppocr_ext.report.formats import (
    duration,
    esc,
    finite_number,
    millions,
    percent,
    period,
    plain,
    rate,
    similarity,
)
from ppocr_ext.report.page_template import page, table
from ppocr_ext.report.run_folder import RunFolder, lookup, read_runs
from ppocr_ext.report.run_sections import configuration, curves, data, evaluations, predictions

REPORT_FILE = "report.html"
# `reason` in run.json
_SIGNALS = {"signal 2": "stopped by Ctrl-C (SIGINT)", "signal 15": "stopped by SIGTERM"}
_STATUS = {"running": "running, or killed", "unknown": "status unknown"}


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


@dataclass(frozen=True)
class Headline:
    """The most important numbers of a run; None if unknown.

    Attributes:
        best: greatest value of the indicator.
        best_line: the evaluation with that value.
        last: the latest evaluation.
        speed: images per second in training, median over the windows.
        seconds: training time, over all calls.
        step: the latest step.
    """

    best: float | None
    best_line: dict[str, Any]
    last: dict[str, Any]
    speed: float | None
    seconds: float | None
    step: int | None


def headline(run: RunFolder) -> Headline:
    """Compute the numbers of ``run`` from its ``metrics.jsonl``."""
    train, evals = run.metrics.train, run.metrics.evals
    step, best = best_point(run.metrics.series("eval", run.indicator)) or (None, None)
    speeds = [v for v in (finite_number(line.get("ips")) for line in train) if v is not None]
    seconds = [v for v in (finite_number(line.get("time")) for line in [*train, *evals]) if v is not None]
    return Headline(
        best=best,
        best_line=next((line for line in evals if line["step"] == step), {}),
        last=evals[-1] if evals else {},
        speed=statistics.median(speeds) if speeds else None,
        seconds=max(seconds, default=None),
        step=max((line["step"] for line in [*train, *evals]), default=None),
    )


def summary(runs: Sequence[RunFolder]) -> str:
    """Return the numbers and circumstances of one run, or a table that compares several."""
    if len(runs) == 1:
        return _card(runs[0], 0, _figures(runs[0]))
    cards = "".join(_card(run, index, "") for index, run in enumerate(runs))
    return f'{_comparison(runs)}<div class="grid2" style="margin-top:14px">{cards}</div>'


def _status_title(run: RunFolder, index: int, level: str = "h3") -> str:
    return (
        f'<div class="name">{color_mark(index)}<{level}>{esc(run.name)}</{level}>'
        f'<span class="badge {run.status}">{_STATUS.get(run.status, run.status)}</span></div>'
    )


def _card(run: RunFolder, index: int, figures: str) -> str:
    reason = lookup(run.record, "reason")
    notes = [(f"note {run.status}", _SIGNALS.get(str(reason), reason))] if reason else []
    notes += [("note", note) for note in run.notes]
    listed = "".join(f'<p class="{kind}">{esc(note)}</p>' for kind, note in notes)
    facts = "".join(f"<dt>{name}</dt><dd>{esc(value)}</dd>" for name, value in _facts(run) if value)
    return f'<article class="card">{_status_title(run, index)}{figures}<dl>{facts}</dl>{listed}</article>'


def _figures(run: RunFolder) -> str:
    found, name = headline(run), run.indicator_name
    where = f"at step {plain(found.best_line.get('step'))}" if found.best_line else "no evaluation yet"
    figures = [
        (percent(found.best), f"best {name}, {where}"),
        (percent(found.last.get(run.indicator)), f"last {name}"),
        (similarity(found.best_line.get("norm_edit_dis")), "1 − edit distance at the best"),
        (rate(found.speed), "images/s in training"),
        (duration(found.seconds), "of training"),
        (millions(lookup(run.record, "parameters", "trained")), "parameters trained"),
    ]
    cells = "".join(f"<div><b>{esc(value)}</b><span>{esc(label)}</span></div>" for value, label in figures)
    return f'<div class="figures">{cells}</div>'


def _comparison(runs: Sequence[RunFolder]) -> str:
    found = [headline(run) for run in runs]
    top = max((each.best for each in found if each.best is not None), default=None)
    rows = []
    for index, (run, each) in enumerate(zip(runs, found, strict=True)):
        best = percent(each.best)
        rows.append([
            _status_title(run, index, "span"),
            f"<b>{best}</b>" if each.best is not None and each.best == top else best,
            plain(each.best_line.get("step")),
            percent(each.last.get(run.indicator)),
            similarity(each.best_line.get("norm_edit_dis")),
            plain(each.step),
            duration(each.seconds),
            rate(each.speed),
            millions(lookup(run.record, "parameters", "trained")),
        ])  # fmt: skip
    head = [
        "run",
        "best",
        "at step",
        "last",
        "1 − NED",
        "steps",
        "training",
        "images/s",
        "parameters trained",
    ]
    return f'<div class="card scroll">{table(head, rows)}</div>'


def _facts(run: RunFolder) -> list[tuple[str, str]]:
    def recorded(*keys: str) -> str:
        value = lookup(run.record, *keys)
        return "" if value is None else str(value)

    step, epochs, versions = (
        headline(run).step,
        lookup(run.config, "Global", "epoch_num"),
        lookup(run.record, "versions"),
    )
    lines = [*run.metrics.train[-1:], *run.metrics.evals[-1:]]
    epoch = max(
        (line["epoch"] for line in lines if finite_number(line.get("epoch")) is not None), default=None
    )
    of_epochs = f", epoch {epoch} of {epochs}" if epoch and finite_number(epochs) else ""
    every, trained = (lookup(run.record, "parameters", key) for key in ("all", "trained"))
    parameters = millions(every) + (f", {millions(trained)} of them trained" if trained != every else "")
    processes = finite_number(lookup(run.record, "processes")) or 1
    classes, dictionary = recorded("dictionary", "classes"), Path(recorded("dictionary", "path"))
    if dictionary.is_relative_to(Path.cwd()):
        dictionary = dictionary.relative_to(Path.cwd())
    return [
        ("steps", "" if step is None else plain(step) + of_epochs),
        ("parameters", "" if finite_number(every) is None else parameters),
        ("accuracy", SPACES_IGNORED if run.ignores_spaces else ""),
        ("date", period(recorded("started"), recorded("ended"))),
        (
            "resumed at",
            f"step {plain(lookup(run.record, 'resumed_from_step'))}" if recorded("resumed_from") else "",
        ),
        ("device", recorded("device") + (f", {processes:.0f} processes" if processes > 1 else "")),
        ("seed", recorded("seed")),
        ("dictionary", f"{classes} classes, {dictionary}" if classes else ""),
        ("PaddleOCR", f"{recorded('host', 'version')} {recorded('host', 'form')}".strip()),
        (
            "versions",
            ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else "",
        ),
        ("folder", str(run.folder)),
    ]
