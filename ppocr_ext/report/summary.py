"""The head of the report: each run's name and status, its numbers, and what it ran on."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.panels import best_point
from ppocr_ext.report.run_data import RunData
from ppocr_ext.report.svg import COLORS, dash_of
from ppocr_ext.report.text import duration, esc, millions, number, percent, period, plain, rate, similarity

_SIGNALS = {
    "signal 2": "stopped by Ctrl-C (SIGINT)",
    "signal 15": "stopped by SIGTERM",
}  # of `reason` in run.json

_STATUS = {"running": "running, or killed", "unknown": "status unknown"}
INDICATOR_NAMES = {"acc": "accuracy", "norm_edit_dis": "1 − edit distance"}


@dataclass(frozen=True)
class Headline:
    """The numbers that one asks of a run first; None where there is none.

    Attributes:
        best: greatest value of the indicator; ``best_line``: that evaluation; ``last``: the latest evaluation.
        speed: images a second in training, median over the windows.
        seconds: of training, over all calls.
    """

    best: float | None
    best_line: dict[str, Any]
    last: dict[str, Any]
    speed: float | None
    seconds: float | None
    step: int | None


def headline(run: RunData) -> Headline:
    """Work out the numbers of ``run`` from its ``metrics.jsonl``."""
    metrics = run.metrics
    best = best_point(metrics.eval_series(run.indicator))
    line = next((e for e in metrics.evals if best is not None and e["step"] == best[0]), {})
    speeds = [v for v in (number(window.get("ips")) for window in metrics.train) if v is not None]
    everything = [*metrics.train, *metrics.evals]
    seconds = [v for v in (number(each.get("time")) for each in everything) if v is not None]
    return Headline(
        best=None if best is None else best[1],
        best_line=line,
        last=metrics.evals[-1] if metrics.evals else {},
        speed=statistics.median(speeds) if speeds else None,
        seconds=max(seconds, default=None),
        step=max((each["step"] for each in everything), default=None),
    )


def swatch(index: int) -> str:
    """A stroke in the colour of the run number ``index``."""
    return (
        f'<svg class="swatch r{index % COLORS}" viewBox="0 0 22 4"><path d="M0 2H22"{dash_of(index)}/></svg>'
    )


def name_of(run: RunData, index: int) -> str:
    """Colour and name."""
    return f'<div class="name">{swatch(index)}<h3>{esc(run.name)}</h3></div>'


def _title(run: RunData, index: int, level: str = "h3") -> str:
    """Colour, name and status."""
    status = _STATUS.get(run.status, run.status)
    return (
        f'<div class="name">{swatch(index)}<{level}>{esc(run.name)}</{level}>'
        f'<span class="badge {run.status}">{status}</span></div>'
    )


def legend(runs: Sequence[RunData]) -> str:
    """Which colour is which run."""
    entries = "".join(
        f'<span class="name">{swatch(index)}{esc(run.name)}</span>' for index, run in enumerate(runs)
    )
    return f'<div class="legend">{entries}</div>'


def summary(runs: Sequence[RunData]) -> str:
    """Numbers and circumstances of one run, or of several with a table to compare them."""
    if len(runs) == 1:
        return _card(runs[0], 0, _figures(runs[0]))
    cards = "".join(_card(run, index, "") for index, run in enumerate(runs))
    return f'{_table(runs)}<div class="grid2" style="margin-top:14px">{cards}</div>'


def _card(run: RunData, index: int, figures: str) -> str:
    reason = run.of_record("reason")
    reason = _SIGNALS.get(str(reason), reason)
    said = f'<p class="note {run.status}">{esc(reason)}</p>' if reason else ""
    said += "".join(f'<p class="note">{esc(note)}</p>' for note in run.notes)
    return f'<article class="card">{_title(run, index)}{figures}{_facts(run)}{said}</article>'


def _figures(run: RunData) -> str:
    found = headline(run)
    name = INDICATOR_NAMES.get(run.indicator, run.indicator)
    where = f"at step {plain(found.best_line.get('step'))}" if found.best_line else "no evaluation yet"
    figures = [
        (percent(found.best), f"best {name}, {where}"),
        (percent(found.last.get(run.indicator)), f"last {name}"),
        (similarity(found.best_line.get("norm_edit_dis")), "1 − edit distance at the best"),
        (rate(found.speed), "images/s in training"),
        (duration(found.seconds), "of training"),
        (millions(run.of_record("parameters", "trained")), "parameters trained"),
    ]
    cells = "".join(f"<div><b>{esc(value)}</b><span>{esc(label)}</span></div>" for value, label in figures)
    return f'<div class="figures">{cells}</div>'


def _table(runs: Sequence[RunData]) -> str:
    found = [headline(run) for run in runs]
    top = max((each.best for each in found if each.best is not None), default=None)
    rows = []
    for index, (run, each) in enumerate(zip(runs, found, strict=True)):
        best = (
            f"<b>{percent(each.best)}</b>"
            if each.best is not None and each.best == top
            else percent(each.best)
        )
        cells = [
            best,
            plain(each.best_line.get("step")),
            percent(each.last.get(run.indicator)),
            similarity(each.best_line.get("norm_edit_dis")),
            plain(each.step),
            duration(each.seconds),
            rate(each.speed),
            millions(run.of_record("parameters", "trained")),
        ]
        rows.append(
            f"<tr><td>{_title(run, index, 'span')}</td>{''.join(f'<td>{c}</td>' for c in cells)}</tr>"
        )
    names = [
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
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<div class="card scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _facts(run: RunData) -> str:
    facts = [(name, value) for name, value in _all_facts(run) if value]
    rows = "".join(f"<dt>{esc(name)}</dt><dd>{esc(value)}</dd>" for name, value in facts)
    return f"<dl>{rows}</dl>" if facts else ""


def _all_facts(run: RunData) -> list[tuple[str, str]]:
    def said(*keys: str) -> str:
        value = run.of_record(*keys)
        return "" if value is None else str(value)

    step, epochs, started = headline(run).step, run.at("Global", "epoch_num"), said("started")
    ended = said("ended")
    begun, done = (_last_epoch(run), epochs) if number(epochs) else (None, None)
    resumed = f"step {plain(run.of_record('resumed_from_step'))}" if said("resumed_from") else ""
    versions = run.of_record("versions")
    host = " ".join(word for word in (said("host", "version"), said("host", "form")) if word)
    classes, dictionary = said("dictionary", "classes"), _from_here(said("dictionary", "path"))
    return [
        ("steps", "" if step is None else plain(step) + (f", epoch {begun} of {done}" if begun else "")),
        ("parameters", _parameters(run)),
        ("accuracy", SPACES_IGNORED if run.ignores_spaces else ""),
        ("date", period(started, ended)),
        ("went on at", resumed),
        ("device", said("device") + _processes(run)),
        ("seed", said("seed")),
        ("dictionary", f"{classes} classes, {dictionary}" if classes else ""),
        ("PaddleOCR", host),
        (
            "versions",
            ", ".join(f"{k} {v}" for k, v in versions.items()) if isinstance(versions, dict) else "",
        ),
        ("folder", str(run.folder)),
    ]


def _from_here(path: str) -> str:
    """``path`` as seen from the current folder, where it lies below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if path and Path(path).is_relative_to(here) else path


def _last_epoch(run: RunData) -> Any:
    lines = [*run.metrics.train[-1:], *run.metrics.evals[-1:]]
    return max((line["epoch"] for line in lines if number(line.get("epoch")) is not None), default=None)


def _parameters(run: RunData) -> str:
    every, trained = (run.of_record("parameters", key) for key in ("all", "trained"))
    if number(every) is None:
        return ""
    return f"{millions(every)}" + (f", {millions(trained)} of them trained" if trained != every else "")


def _processes(run: RunData) -> str:
    count = number(run.of_record("processes"))
    return f", {count:.0f} processes" if count is not None and count > 1 else ""
