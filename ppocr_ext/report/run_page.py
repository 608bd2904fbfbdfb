"""Write the report: one HTML page about one or several runs, and their curves as an SVG file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from ppocr_ext.checkpoint.contents import BEST, checkpoint_line
from ppocr_ext.checkpoint.files import names_in
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
    similarity,
)
from ppocr_ext.report.page_template import page, table
from ppocr_ext.report.run_folder import RunFolder, lookup, read_runs, unevaluated
from ppocr_ext.report.run_sections import (
    configuration,
    curves,
    data,
    evaluations,
    parts,
    predictions,
    warnings,
)

REPORT_FILE = "report.html"
# `reason` in run.json
_SIGNALS = {
    "signal 1": "stopped by SIGHUP (its terminal was closed)",
    "signal 2": "stopped by Ctrl-C (SIGINT)",
    "signal 15": "stopped by SIGTERM",
}
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
    sections = (summary, warnings, curves, predictions, evaluations, data, parts, configuration)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    body = "\n".join(section(runs) for section in sections)
    write_text(out, page(title or _title(runs), count, body))
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


def _best(run: RunFolder) -> tuple[int, float] | tuple[None, None]:
    """Return step and value of the greatest number of the indicator, None if there is none."""
    return best_point(run.metrics.series("eval", run.indicator)) or (None, None)


def _numbers(run: RunFolder) -> dict[str, str]:
    """Return the most important numbers of a run as text, by their names in the table of runs."""
    train, evals = run.metrics.train, run.metrics.evals
    step, best = _best(run)
    best_line = next((line for line in evals if line["step"] == step), {})
    # of each window; over all calls
    speeds = [v for v in (finite_number(line.get("ips")) for line in train) if v is not None]
    seconds = [v for v in (finite_number(line.get("time")) for line in [*train, *evals]) if v is not None]
    speed = statistics.median(speeds) if speeds else None
    return {
        "best": percent(best),
        "at step": plain(step),
        "last": percent(evals[-1].get(run.indicator) if evals else None),
        "1 − NED": similarity(best_line.get("norm_edit_dis")),
        "steps": plain(max((line["step"] for line in [*train, *evals]), default=None)),
        "training": duration(max(seconds, default=None)),
        "images/s": "–" if speed is None else f"{speed:,.1f}" if speed < 100 else f"{speed:,.0f}",
        "parameters trained": millions(lookup(run.record, "parameters", "trained")),
    }


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
    verdict = str(lookup(run.record, "verdict", "text") or "").splitlines()
    steps = [
        finite_number(lookup(run.record, "global_step")) or 0,
        *(line["step"] for line in run.metrics.train),
    ]
    evaluated = run.metrics.evals[-1]["step"] if run.metrics.evals else 0
    late = unevaluated(evaluated, int(max(steps))) if lookup(run.config, "Eval") else ""
    notes += [("note", note) for note in (*verdict, *run.notes, late) if note]
    listed = "".join(f'<p class="{kind}">{esc(note)}</p>' for kind, note in notes)
    facts = "".join(f"<dt>{name}</dt><dd>{esc(value)}</dd>" for name, value in _facts(run) if value)
    return f'<article class="card">{_status_title(run, index)}{figures}<dl>{facts}</dl>{listed}</article>'


def _figures(run: RunFolder) -> str:
    numbers, name = _numbers(run), run.indicator_name
    where = "no evaluation yet" if _best(run)[0] is None else f"at step {numbers['at step']}"
    labels = {
        "best": f"best {name}, {where}",
        "last": f"last {name}",
        "1 − NED": "1 − edit distance at the best",
        "images/s": "images/s in training",
        "training": "of training",
        "parameters trained": "parameters trained",
    }
    cells = (
        f"<div><b>{esc(numbers[key])}</b><span>{esc(label)}</span></div>" for key, label in labels.items()
    )
    return f'<div class="figures">{"".join(cells)}</div>'


def _comparison(runs: Sequence[RunFolder]) -> str:
    tables, bests = [_numbers(run) for run in runs], [_best(run)[1] for run in runs]
    top = max((best for best in bests if best is not None), default=None)
    rows = []
    for index, (run, numbers) in enumerate(zip(runs, tables, strict=True)):
        if top is not None and bests[index] == top:
            numbers["best"] = f"<b>{numbers['best']}</b>"
        rows.append([_status_title(run, index, "span"), *numbers.values()])
    return f'<div class="card scroll">{table(["run", *tables[0]], rows)}</div>'


def _facts(run: RunFolder) -> list[tuple[str, str]]:
    def recorded(*keys: str) -> str:
        value = lookup(run.record, *keys)
        return "" if value is None else str(value)

    epochs, versions = lookup(run.config, "Global", "epoch_num"), lookup(run.record, "versions")
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
    kept = [name for name in names_in(run.folder) if name in (BEST, "latest")]
    return [
        ("steps", _numbers(run)["steps"] + of_epochs if lines else ""),
        ("parameters", "" if finite_number(every) is None else parameters),
        ("accuracy", SPACES_IGNORED if run.ignores_spaces else ""),
        *(("checkpoint", checkpoint_line(run.folder / name, name)) for name in kept),
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
