"""The chart of ``benchmark.py all``."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.step import COMPILED, PEER
from benchmarks.whole_rows import ENGINE, Run, image_limit, name_of_step, step_limit

_COLORS = ("#0072b2", "#e69f00", "#009e73")  # color-blind readers can distinguish them
_LIMIT = "#d55e00"
_WIDTH, _HEIGHT = 11.0, 3.0  # inches; the height is of a row of panels


def draw_whole(runs: Sequence[Run], file: Path) -> None:
    """Draw a panel for each section, two for the cost by the number of lines.

    Args:
        runs: what was measured (:mod:`benchmarks.whole_rows`).
        file: PNG or SVG, by its ending.
    """
    import matplotlib.pyplot as plt

    run_of = {name: run for run in runs for name in run}
    panels = {
        name: partial(draw, run_of[name])
        for name, draw in (("step", _steps), ("memory", _memory))
        if name in run_of
    }
    if "eval" in run_of or "center" in run_of:
        panels["images"] = partial(_images, run_of)
    if "data" in run_of:
        panels |= {key: partial(_curves, run_of["data"]["data"], key) for key in ("seconds", "peak")}
    rows = [
        [name for name in row if name in panels]
        for row in (["step"], ["images", "memory"], ["seconds", "peak"])
    ]
    rows = [row if len(row) == 2 else 2 * row for row in rows if row]  # a single panel is as wide as two
    bars = len(run_of["step"]["step"]) if "step" in run_of else 0
    heights = [0.35 * bars + 1.0 if row[0] == "step" else _HEIGHT for row in rows]
    figure, places = plt.subplot_mosaic(
        rows, figsize=(_WIDTH, sum(heights)), height_ratios=heights, layout="constrained"
    )
    for name, draw in panels.items():
        draw(places[name])
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _steps(run: Run, panel: Any) -> None:
    medians = {kind: statistics.median(seconds) for kind, seconds in run["step"].items()}
    kinds = sorted(medians, key=lambda kind: medians[kind])
    values = {name_of_step(kind): medians[kind] for kind in kinds}
    _bars(panel, values, [step_limit(run, kind) for kind in kinds], "%.2f")
    panel.set_xlabel(f"seconds of a distillation step, batch {run['batch']}")


def _images(run_of: dict[str, Run], panel: Any) -> None:
    values, limits = {}, []
    for section, work in (("eval", "evaluation"), ("center", "center export")):
        for kind, who in ((COMPILED, "ppocr_ext"), (ENGINE, "engine alone"), (PEER, PEER)):
            if kind in run_of.get(section, {}).get(section, {}):
                values[f"{work}, {who}"] = statistics.median(run_of[section][section][kind])
                limits.append(None if kind == PEER else image_limit(run_of[section]))
    _bars(panel, values, limits, "%.0f")
    panel.set_xlabel("images per second")


def _memory(run: Run, panel: Any) -> None:
    peaks = {name_of_step(kind): peak / 1e9 for kind, peak in run["memory"].items()}
    _bars(panel, peaks, [None] * len(peaks), "%.1f")
    panel.set_xlabel("peak memory of a step, GB")


def _bars(panel: Any, values: dict[str, float], limits: Sequence[float | None], form: str) -> None:
    places = range(len(values))
    colors = [_COLORS[1] if name.endswith("PaddleOCR") else _COLORS[0] for name in values]
    bars = panel.barh(places, list(values.values()), 0.6, color=colors)
    panel.bar_label(bars, fmt=form, padding=3, fontsize=8)
    marks = [(limit, place) for limit, place in zip(limits, places, strict=True) if limit is not None]
    if marks:
        panel.plot(*zip(*marks, strict=True), "|", color=_LIMIT, ms=14, mew=2, label="arithmetic limit")
        panel.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), markerscale=0.6)
    panel.set_yticks(places, list(values), fontsize=8)
    panel.invert_yaxis()
    panel.margins(x=0.15)


def _curves(data: dict[str, Any], key: str, panel: Any) -> None:
    scale, unit = (1.0, "seconds") if key == "seconds" else (1e6, "peak memory, MB")
    for name, color in zip(("label check", "teacher cache", "centers"), _COLORS, strict=True):
        panel.plot(
            data[name]["lines"], [value / scale for value in data[name][key]], "o-", color=color, label=name
        )
    panel.set(xscale="log", xlabel="lines of the label file", ylabel=unit)
    if key == "seconds":
        panel.set_yscale("log")
    else:
        panel.set_ylim(0, None)
    panel.legend(frameon=False, fontsize=8)
