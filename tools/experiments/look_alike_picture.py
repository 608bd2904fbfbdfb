"""What the look-alikes experiment found, as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from experiments.look_alike_results import LookAlikeScores
from ppocr_ext.io.atomic import atomic_writer

_BAR, _DOT, _GREY = "#9ecae1", "#0072B2", "#666666"


def draw_results(path: Path, results: Mapping[str, Sequence[LookAlikeScores]]) -> None:
    """Draw a bar for each model (mean over its seeds) and a dot for each seed.

    Args:
        path: the PNG to write.
        results: scores of each model, one for each seed.
    """
    panels = {
        "look-alike error, %": [
            [100 * seed.look_alikes.value for seed in seeds] for seeds in results.values()
        ],
        "general lines right, %": [
            [100 * seed.general.value for seed in seeds] for seeds in results.values()
        ],
        "look-alikes' centers apart, in standard deviations\n(validation fonts)": [
            [seed.separation for seed in seeds if seed.separation is not None] for seeds in results.values()
        ],
    }
    figure = Figure(figsize=(12, 1.1 + 0.45 * len(results)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, values) in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        _draw_panel(axes, title, list(results), values)
    with atomic_writer(path) as stream:
        figure.savefig(stream, format="png")


def _draw_panel(axes: Axes, title: str, names: Sequence[str], values: Sequence[Sequence[float]]) -> None:
    for row, seeds in enumerate(values):
        if seeds:
            axes.barh(row, statistics.fmean(seeds), height=0.62, color=_BAR)
            axes.plot(seeds, [row] * len(seeds), "o", color=_DOT, markersize=4, alpha=0.8)
            axes.annotate(
                f"{statistics.fmean(seeds):.2f}", (max(seeds), row), xytext=(7, 0),
                textcoords="offset points", va="center", fontsize=9,
            )  # fmt: skip
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)  # the first on top
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.tick_params(labelsize=9, colors=_GREY)
    axes.tick_params(axis="y", labelcolor="black", length=0)
    axes.spines[["top", "right"]].set_visible(False)
