"""Which curves there are to draw of some runs, and what is worked out of them; who draws them is another matter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ppocr_ext.report.metrics_file import Metrics, Series

SMOOTH_FROM = 40  # points from which a curve is drawn smoothed, over its own points
_MOST_PARTS = 6  # parts of the loss that have a panel of their own


@dataclass(frozen=True)
class Panel:
    """A plot: its title, the curve of each run (some may be empty), and how its axis is drawn.

    ``style`` is ``"accuracy"`` (0 to 1), ``"loss"``, ``"lr"`` or ``"plain"`` (from 0).
    """

    title: str
    series: Sequence[Series]
    style: str = "plain"

    def values(self) -> list[float]:
        """All finite values."""
        return [v for series in self.series for v in series.values if math.isfinite(v)]

    def spans_decades(self) -> bool:
        """Whether a logarithmic axis shows more: all values positive, the largest 20 times the smallest."""
        values = self.values()
        return min(values) > 0 and max(values) / min(values) >= 20


def panels_of(runs: Sequence[Metrics]) -> list[Panel]:
    """The panels of which at least one run has a number."""

    def of(title: str, style: str, series: list[Series]) -> list[Panel]:
        return [Panel(title, series, style)] if any(series) else []

    parts = list(dict.fromkeys(part for run in runs for part in run.loss_parts()))
    panels = [
        *of("accuracy, held out", "accuracy", [run.eval_series("acc") for run in runs]),
        *of("1 − edit distance", "accuracy", [run.eval_series("norm_edit_dis") for run in runs]),
        *of("loss", "loss", [run.train_series("loss") for run in runs]),
    ]
    # A run with one part has it as its loss already.
    if len(parts) > 1:
        for part in parts[:_MOST_PARTS]:
            panels += of(part, "loss", [run.loss_series(part) for run in runs])
    panels += of("learning rate", "lr", [run.train_series("lr") for run in runs])
    panels += of("images/s", "plain", [run.train_series("ips") for run in runs])
    return panels


def best_point(series: Series) -> tuple[int, float] | None:
    """Step and value of the greatest number, the last of equals, as ``best_accuracy`` is; None where there is none."""
    finite = [
        (step, value) for step, value in zip(series.steps, series.values, strict=True) if math.isfinite(value)
    ]
    return max(finite, key=lambda point: (point[1], point[0]), default=None)


def smoothed(values: Sequence[float], reach: int) -> list[float]:
    """Mean of the finite neighbours at most ``reach`` to either side; NaN stays NaN."""
    finite = [v if math.isfinite(v) else 0.0 for v in values]
    sums = [0.0, *itertools.accumulate(finite)]
    counts = [0, *itertools.accumulate(int(math.isfinite(v)) for v in values)]
    smooth = []
    for index, value in enumerate(values):
        near = min(reach, index, len(values) - 1 - index)  # even to both sides, so that the ends do not lag
        first, end = index - near, index + near + 1
        known = counts[end] - counts[first]
        smooth.append((sums[end] - sums[first]) / known if math.isfinite(value) else math.nan)
    return smooth
