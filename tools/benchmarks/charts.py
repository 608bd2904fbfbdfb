"""Charts of what was measured."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppocr_ext.errors import PPOCRExtError

if TYPE_CHECKING:  # they import Paddle, or much else
    from benchmarks.infer import InferCosts
    from benchmarks.labels import LabelCosts

_COLORS = ("#0072b2", "#e69f00", "#009e73")  # told apart by the color-blind too
_OTHER, _LIMIT = "#999999", "#d55e00"
_WIDTH, _HEIGHT = 11.0, 3.0  # inches, of `all`; the height is of a row of panels
_BAR = 0.27  # height of a bar of `infer`, where a network has a row of height 1


def has_matplotlib() -> bool:
    """True if charts can be drawn."""
    return importlib.util.find_spec("matplotlib") is not None


def require_matplotlib(option: str) -> None:
    """Refuse an option that needs matplotlib where it is not installed, before anything is measured.

    Raises:
        PPOCRExtError: it is not installed.
    """
    if not has_matplotlib():
        raise PPOCRExtError(
            f"{option}: a chart needs matplotlib. Fix: pip install matplotlib", code="missing_package"
        )


def draw_labels(costs: LabelCosts, file: Path) -> None:
    """Draw speed and memory of the check of label files by their length.

    Args:
        costs: what was measured.
        file: PNG or SVG, by its ending.
    """
    import matplotlib.pyplot as plt

    lines = [each.lines for each in costs.costs]
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
    curves = {
        "lines per second of CPU time": {
            "the check": [each.lines / each.cpu_seconds for each in costs.costs],
            "the bare calls": [each.lines / each.bare_seconds for each in costs.costs],
        },
        "memory, MB": {
            "the check": [each.growth / 1e6 for each in costs.costs],
            "the process": [each.peak / 1e6 for each in costs.costs],
        },
    }
    for panel, (unit, named) in zip(panels, curves.items(), strict=True):
        for (name, values), form, color in zip(named.items(), ("o-", "s--"), _COLORS, strict=False):
            panel.plot(lines, values, form, color=color, label=name)
        panel.set(xscale="log", xlabel="lines of the label file", ylabel=unit, ylim=(0, None))
        panel.legend(frameon=False)
    _save(figure, file)


def draw_infer(costs: InferCosts, file: Path) -> None:
    """Draw images a second of each network and engine: a panel for each number of threads and each batch.

    Args:
        costs: what was measured.
        file: PNG or SVG, by its ending.
    """
    import matplotlib.pyplot as plt

    threads, batches, engines = (costs.values(name) for name in ("threads", "batch", "engine"))
    networks = costs.networks
    size = (5.5 * len(batches) + 1.5, (0.75 * len(networks) + 0.9) * len(threads))
    figure, panels = plt.subplots(
        len(threads), len(batches), figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for row, count in zip(panels, threads, strict=True):
        for panel, batch in zip(row, batches, strict=True):
            for number, engine in enumerate(engines):
                speeds = [costs.find(count, batch, name, engine).best for name in networks]
                places = [place + (number - (len(engines) - 1) / 2) * _BAR for place in range(len(networks))]
                color = (*_COLORS[:2], _OTHER)[number]
                bars = panel.barh(places, speeds, _BAR, label=engine, color=color)
                panel.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
            panel.set_yticks(range(len(networks)), [name.replace(", ", ",\n") for name in networks])
            panel.set_title(f"batch {batch}, {count} thread{'s' if count > 1 else ''}", fontsize=10)
            panel.margins(x=0.15)
    panels[0][0].invert_yaxis()
    for panel in panels[-1]:
        panel.set_xlabel("images/s")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(engines), frameon=False)
    _save(figure, file)


def draw_whole(runs: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw a panel for each section of ``benchmark.py all``, two for the cost against data.

    Args:
        runs: what was measured (:mod:`benchmarks.whole_rows`).
        file: PNG or SVG, by its ending.
    """
    import matplotlib.pyplot as plt

    found = {name: run for run in runs for name in run}  # the run of each section
    panels = {
        name: partial(draw, found) for name, draw in (("step", _steps), ("memory", _memory)) if name in found
    }
    if "eval" in found or "center" in found:
        panels["images"] = partial(_images, found)
    if "data" in found:
        panels |= {key: partial(_curves, found["data"]["data"], key) for key in ("seconds", "peak")}
    rows = [
        [name for name in row if name in panels]
        for row in (["step"], ["images", "memory"], ["seconds", "peak"])
    ]
    rows = [row if len(row) == 2 else 2 * row for row in rows if row]  # one alone is as wide as two
    bars = len(found["step"]["step"]) if "step" in found else 0
    heights = [0.35 * bars + 1.0 if row[0] == "step" else _HEIGHT for row in rows]
    figure, places = plt.subplot_mosaic(
        rows, figsize=(_WIDTH, sum(heights)), height_ratios=heights, layout="constrained"
    )
    for name, draw in panels.items():
        draw(places[name])
    _save(figure, file)


def _steps(found: dict[str, Any], panel: Any) -> None:
    from benchmarks.whole_rows import name_of_step, step_limit

    run = found["step"]
    medians = {kind: statistics.median(seconds) for kind, seconds in run["step"].items()}
    kinds = sorted(medians, key=lambda kind: medians[kind])
    named = {name_of_step(kind): medians[kind] for kind in kinds}
    _bars(panel, named, [step_limit(run, kind) for kind in kinds], "%.2f")
    panel.set_xlabel(f"seconds of a distillation step, batch {run['batch']}")


def _images(found: dict[str, Any], panel: Any) -> None:
    from benchmarks.step import COMPILED, PEER
    from benchmarks.whole_rows import ENGINE, image_limit

    named, limits = {}, []
    for section, work in (("eval", "evaluation"), ("center", "center export")):
        for kind, who in ((COMPILED, "ppocr_ext"), (ENGINE, "engine alone"), (PEER, PEER)):
            if kind in found.get(section, {}).get(section, {}):
                named[f"{work}, {who}"] = statistics.median(found[section][section][kind])
                limits.append(None if kind == PEER else image_limit(found[section]))
    _bars(panel, named, limits, "%.0f")
    panel.set_xlabel("images per second")


def _memory(found: dict[str, Any], panel: Any) -> None:
    from benchmarks.whole_rows import name_of_step

    peaks = {name_of_step(kind): peak / 1e9 for kind, peak in found["memory"]["memory"].items()}
    _bars(panel, peaks, [None] * len(peaks), "%.1f")
    panel.set_xlabel("peak memory of a step, GB")


def _bars(panel: Any, named: dict[str, float], limits: Sequence[float | None], form: str) -> None:
    places = range(len(named))
    colors = [_COLORS[1] if name.endswith("PaddleOCR") else _COLORS[0] for name in named]
    bars = panel.barh(places, list(named.values()), 0.6, color=colors)
    panel.bar_label(bars, fmt=form, padding=3, fontsize=8)
    marked = [(limit, place) for limit, place in zip(limits, places, strict=True) if limit is not None]
    if marked:
        panel.plot(*zip(*marked, strict=True), "|", color=_LIMIT, ms=14, mew=2, label="arithmetic limit")
        panel.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), markerscale=0.6)
    panel.set_yticks(places, list(named), fontsize=8)
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


def _save(figure: Any, file: Path) -> None:
    import matplotlib.pyplot as plt

    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)
