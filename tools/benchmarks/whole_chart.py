"""A chart of what :mod:`benchmarks.whole` has measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from benchmarks.export_center import ENGINE
from benchmarks.step import COMPILED, PEER
from benchmarks.whole import CACHE, CENTERS, LABELS
from benchmarks.whole_rows import image_limit, name_of_step, step_limit

_COLORS = ("#0072b2", "#e69f00", "#009e73")  # told apart by the color-blind too
_LIMIT = "#d55e00"
_WIDTH, _HEIGHT = 11.0, 3.3  # inches; the height is of a row of panels


def draw(found: dict[str, Any], file: Path) -> None:
    """Draw a panel for each section, two for the cost against data.

    Args:
        found: what was measured.
        file: PNG or SVG, by its ending.
    """
    panels: list[Callable[[Any], None]] = []
    if "step" in found:
        panels.append(partial(_steps, found=found))
    if "eval" in found or "center" in found:
        panels.append(partial(_images, found=found))
    if "memory" in found:
        panels.append(partial(_memory, found=found))
    if "data" in found:
        panels += [partial(_curves, data=found["data"], key=key) for key in ("seconds", "peak")]
    count = -(-len(panels) // 2)
    figure, places = plt.subplots(
        count, 2, figsize=(_WIDTH, _HEIGHT * count), squeeze=False, layout="constrained"
    )
    for place in places.flat:
        place.spines[["top", "right"]].set_visible(False)
        place.set_visible(False)
    for place, panel in zip(places.flat, panels, strict=False):
        place.set_visible(True)
        panel(place)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _bars(
    panel: Any, names: Sequence[str], values: Sequence[float], limits: Sequence[float | None], form: str
) -> None:
    places = range(len(names))
    colors = [_COLORS[1] if name.endswith(PEER) else _COLORS[0] for name in names]
    panel.bar_label(panel.barh(places, values, 0.6, color=colors), fmt=form, padding=3, fontsize=8)
    marked = [(limit, place) for limit, place in zip(limits, places, strict=True) if limit is not None]
    if marked:
        panel.plot(*zip(*marked, strict=True), "|", color=_LIMIT, ms=16, mew=2, label="arithmetic limit")
        panel.legend(frameon=False, fontsize=8)
    panel.set_yticks(places, [name.replace(", ", ",\n") for name in names], fontsize=8)
    panel.invert_yaxis()
    panel.margins(x=0.15)


def _steps(panel: Any, found: dict[str, Any]) -> None:
    kinds = sorted(found["step"], key=lambda kind: statistics.median(found["step"][kind]))
    medians = [statistics.median(found["step"][kind]) for kind in kinds]
    _bars(
        panel, [name_of_step(kind) for kind in kinds], medians, [step_limit(found, k) for k in kinds], "%.2f"
    )
    panel.set_xlabel(f"seconds of a distillation step, batch {found['batch']}")


def _images(panel: Any, found: dict[str, Any]) -> None:
    named = {
        f"{work}, {who}": statistics.median(found[section][kind])
        for section, work in (("eval", "evaluation"), ("center", "center export"))
        for kind, who in ((COMPILED, "ppocr_ext"), (ENGINE, "engine alone"), (PEER, PEER))
        if kind in found.get(section, {})
    }
    limits = [None if name.endswith(PEER) else image_limit(found) for name in named]
    _bars(panel, list(named), list(named.values()), limits, "%.0f")
    panel.set_xlabel("images per second")


def _memory(panel: Any, found: dict[str, Any]) -> None:
    peaks = {name_of_step(kind): peak / 1e9 for kind, peak in found["memory"].items()}
    _bars(panel, list(peaks), list(peaks.values()), [None] * len(peaks), "%.1f")
    panel.set_xlabel("peak memory of a step, GB")


def _curves(panel: Any, data: dict[str, Any], key: str) -> None:
    for name, color in zip((LABELS, CACHE, CENTERS), _COLORS, strict=True):
        scale = 1.0 if key == "seconds" else 1e6
        panel.plot(
            data[name]["lines"], [value / scale for value in data[name][key]], "o-", color=color, label=name
        )
    panel.set_xscale("log")
    panel.set_yscale("log" if key == "seconds" else "linear")
    panel.set_xlabel("lines of the label file")
    panel.set_ylabel("seconds" if key == "seconds" else "peak memory, MB")
    if key == "peak":
        panel.set_ylim(0, None)
    panel.legend(frameon=False, fontsize=8)
