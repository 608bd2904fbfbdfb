"""Curves of one or several runs in one picture: accuracy, loss and its parts, learning rate, speed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from ppocr_ext.errors import DataError
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.report.metrics_file import Metrics, Series, read_metrics
from ppocr_ext.report.panels import SMOOTH_FROM, Panel, best_point, panels_of, smoothed

# Okabe and Ito's colours, which people with colour blindness tell apart; black and yellow left out.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("-", "--", ":", "-.")  # for runs beyond the colours
_GREY = "#666666"
_DPI = 130


@dataclass(frozen=True)
class _Run:
    """A run with the way it is drawn in every panel."""

    name: str
    metrics: Metrics
    color: str
    dash: str


def draw_curves(runs: Mapping[str, str | Path], out: str | Path, title: str = "") -> Path:
    """Draw the curves of ``runs`` into the PNG ``out``.

    Args:
        runs: name for the legend -> ``metrics.jsonl`` or the folder of the run.
        out: the picture; written atomically.
        title: stands over the picture.

    Returns:
        ``out``.

    Raises:
        DataError: no run, a file that cannot be read, or not one number to draw.
    """
    drawn = [
        _Run(name, read_metrics(path), _COLORS[i % len(_COLORS)], _DASHES[i // len(_COLORS) % len(_DASHES)])
        for i, (name, path) in enumerate(runs.items())
    ]
    panels = panels_of([run.metrics for run in drawn])
    if not panels:
        named = ", ".join(str(path) for path in runs.values()) or "no run"
        raise DataError(f"There is nothing to draw in {named}: no step has been logged yet.")
    figure = _figure(drawn, panels, title)
    FigureCanvasAgg(figure)
    out = Path(out)
    with atomic_writer(out) as stream, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that matplotlib's font lacks
        figure.savefig(stream, format="png", dpi=_DPI)
    return out


def _figure(runs: Sequence[_Run], panels: Sequence[Panel], title: str) -> Figure:
    columns = _columns(len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(4.3 * columns, 3.0 * rows + 0.8), layout="constrained")
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    cells = [axes for row in grid for axes in row]
    for axes, panel in zip(cells, panels, strict=False):
        _draw_panel(axes, runs, panel)
    for axes in cells[len(panels) :]:
        axes.remove()
    handles = [
        cells[0].plot([], [], color=run.color, linestyle=run.dash, linewidth=2.5, label=_legend(run))[0]
        for run in runs
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(3, len(runs)), frameon=False, fontsize=11
    )
    if title:
        figure.suptitle(title, fontsize=14, fontweight="bold")
    return figure


def _columns(panels: int) -> int:
    """Two, three or four columns: as few empty places as can be, then as few columns."""
    return panels if panels <= 3 else min((3, 2, 4) if panels == 4 else (3, 4), key=lambda n: -panels % n)


def _legend(run: _Run) -> str:
    best = best_point(run.metrics.eval_series("acc"))
    return f"{run.name} (best {best[1]:.1%} at step {best[0]:,})" if best else run.name


def _draw_panel(axes: Axes, runs: Sequence[_Run], panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=11, loc="left")
    for behind, (run, series) in enumerate(zip(runs[::-1], panel.series[::-1], strict=True)):
        # schedules are often the same: the curves behind are wider, so that all are seen
        width = 1.8 + 2.5 * (len(runs) - 1 - behind) if panel.style == "lr" else 1.8
        if series:
            _draw_series(axes, run, series, panel.style, width)
    _style_axes(axes, panel)


def _draw_series(axes: Axes, run: _Run, series: Series, style: str, width: float) -> None:
    line: dict[str, Any] = {"color": run.color, "linestyle": run.dash, "linewidth": width}
    if style == "accuracy":
        axes.plot(series.steps, series.values, marker="o", markersize=3, **line)
        best = best_point(series)
        if best:
            axes.plot(*best, marker="o", markersize=7, markerfacecolor="white", markeredgewidth=1.8, **line)
    elif style == "lr" or len(series.steps) < SMOOTH_FROM:
        axes.plot(series.steps, series.values, **line)
    else:
        axes.plot(series.steps, series.values, color=run.color, linewidth=0.7, alpha=0.35)
        axes.plot(series.steps, smoothed(series.values, len(series.values) // 20), **line)


def _style_axes(axes: Axes, panel: Panel) -> None:
    axes.grid(True, color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, colors=_GREY)
    axes.set_xlabel("step", fontsize=9, color=_GREY, loc="right")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlim(left=0)
    if panel.style == "accuracy":
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    elif panel.style == "loss" and panel.spans_decades():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    elif panel.style != "loss":
        axes.set_ylim(0, 1.1 * axes.dataLim.y1 or 1)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
