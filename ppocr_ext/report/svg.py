"""A plot as SVG in the page: its colours are the page's, so that it follows the reader's light or dark scheme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ppocr_ext.report.metrics_file import Series
from ppocr_ext.report.panels import SMOOTH_FROM, Panel, best_point, smoothed
from ppocr_ext.report.text import esc, percent, plain

COLORS = 6  # classes r0 … r5 of the page's style
_DASHES = ("", "7 4", "2 3", "8 3 2 3")  # for runs beyond the colours
_WIDTH, _HEIGHT = 370, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 10, 36
_MOST_POINTS = 400  # of one line; a long run has more than a screen has pixels


@dataclass(frozen=True)
class _Scale:
    """A range of values laid over pixels, with its ticks."""

    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[float]
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def chart(panel: Panel, names: Sequence[str], last: int) -> str:
    """The plot of ``panel``, whose curves are those of the runs ``names``, up to the step ``last``, as an ``<svg>``."""
    x, y = _x_scale(last), _y_scale(panel)
    show = percent if panel.style == "accuracy" else lambda value: plain(value, 3)
    body = [_grid(x, y, panel.style)]
    for index in reversed(range(len(panel.series))):  # the first run on top
        if panel.series[index]:
            body.append(_curve(panel, index, names[index], x, y, show, len(names)))
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{esc(panel.title)}">{"".join(body)}</svg>'


def dash_of(index: int) -> str:
    """The attribute that tells runs of the same colour apart."""
    dash = _DASHES[index // COLORS % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _x_scale(last: int) -> _Scale:
    end = max(last, 1)
    ticks = [tick for tick in nice_ticks(0, end, 5) if tick == int(tick)]
    return _Scale(0, end, _LEFT, _WIDTH - _RIGHT, ticks)


def _y_scale(panel: Panel) -> _Scale:
    start, end = _HEIGHT - _BOTTOM, _TOP
    values = panel.values()
    low, high = min(values), max(values)
    if panel.style == "accuracy":
        return _Scale(0.0, 1.0, start, end, (0, 0.25, 0.5, 0.75, 1.0))
    if panel.style == "loss" and panel.spans_decades():
        low, high = low / 1.15, high * 1.15
        return _Scale(low, high, start, end, log_ticks(low, high), log=True)
    if panel.style != "loss":
        low, high = min(0.0, low), 1.08 * high
    pad = 0.06 * (high - low) if panel.style == "loss" else 0.0
    low, high = low - pad, high + pad
    if high <= low:  # one value only
        low, high = low - (abs(low) or 1.0) / 2, low + (abs(low) or 1.0) / 2
    return _Scale(low, high, start, end, nice_ticks(low, high, 5))


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from ``low`` to ``high``, roughly ``about`` of them."""
    rough = (high - low) / about
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade between ``low`` and ``high``; of many decades only powers of ten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = math.ceil(len(decades) / 6)
    mantissas = (1, 2, 5) if math.log10(high / low) < 2.3 else (1,)
    ticks = [m * 10.0**d for d in decades if d % every == 0 for m in mantissas]
    return [tick for tick in ticks if low <= tick <= high]


def _grid(x: _Scale, y: _Scale, style: str) -> str:
    parts = []
    for tick in y.ticks:
        at = f"{y(tick):.1f}"
        label = f"{100 * tick:.0f}%" if style == "accuracy" else plain(tick, 3)
        parts.append(f'<path class="grid" d="M{_LEFT} {at}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 7}" y="{at}" dy="4" text-anchor="end">{label}</text>')
    bottom = _HEIGHT - _BOTTOM
    for tick in x.ticks:
        anchor = "end" if x(tick) > _WIDTH - _RIGHT - 20 else "middle"
        parts.append(
            f'<text class="tick" x="{x(tick):.1f}" y="{bottom + 17}" text-anchor="{anchor}">{tick:,.0f}</text>'
        )
    parts.append(f'<path class="axis" d="M{_LEFT} {bottom}H{_WIDTH - _RIGHT}"/>')
    parts.append(f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 3}" text-anchor="end">step</text>')
    return "".join(parts)


def _curve(
    panel: Panel, index: int, name: str, x: _Scale, y: _Scale, show: Callable[[float], str], runs: int
) -> str:
    series, dash = panel.series[index], dash_of(index)
    if panel.style == "accuracy":
        drawn = _line(series.steps, series.values, x, y, f'class="line"{dash}') + _marks(
            series, name, x, y, show
        )
    elif panel.style == "lr" or len(series.steps) < SMOOTH_FROM:
        # schedules are often the same: the curves behind are wider, so that all are seen
        wider = f' style="stroke-width:{2 + 2.5 * index:g}"' if panel.style == "lr" and runs > 1 else ""
        drawn = _line(series.steps, series.values, x, y, f'class="line"{dash}{wider}')
    else:
        smooth = smoothed(series.values, len(series.values) // 20)
        drawn = _line(series.steps, series.values, x, y, 'class="faint"')
        drawn += _line(series.steps, smooth, x, y, f'class="line"{dash}')
    return f'<g class="r{index % COLORS}">{drawn}</g>'


def _line(steps: Sequence[int], values: Sequence[float], x: _Scale, y: _Scale, attributes: str) -> str:
    """A path through the points; it is broken where a value is not finite, and a point alone is a dot."""
    path, pen = [], "M"
    for step, value in _thinned(steps, values):
        if math.isfinite(value):
            path.append(f"{pen}{x(step):.1f} {y(value):.1f}")
            pen = "L"
        else:
            pen = "M"
    if len(path) == 1:
        path.append("h0.1")
    return f'<path {attributes} d="{"".join(path)}"/>'


def _thinned(steps: Sequence[int], values: Sequence[float]) -> list[tuple[int, float]]:
    """At most :data:`_MOST_POINTS` points: of each stretch the least and the greatest, in their order."""
    points = list(zip(steps, values, strict=True))
    if len(points) <= _MOST_POINTS:
        return points
    stretch = math.ceil(2 * len(points) / _MOST_POINTS)
    kept: list[tuple[int, float]] = []
    for begin in range(0, len(points), stretch):
        finite = [point for point in points[begin : begin + stretch] if math.isfinite(point[1])]
        if finite:
            ends = {min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])}
            kept += sorted(ends)
        else:
            kept.append(points[begin])
    return kept


def _marks(series: Series, name: str, x: _Scale, y: _Scale, show: Callable[[float], str]) -> str:
    """A dot for each evaluation, which says its numbers when pointed at; the best is larger."""
    best = best_point(series)
    points = sorted({*_thinned(series.steps, series.values), *((best,) if best else ())})
    dots = []
    for step, value in points:
        if not math.isfinite(value):
            continue
        kind, radius = ("best", 5.5) if (step, value) == best else ("dot", 2.6)
        said = f"{esc(name)}, step {step:,}: {show(value)}"
        dots.append(
            f'<circle class="{kind}" cx="{x(step):.1f}" cy="{y(value):.1f}" r="{radius}"><title>{said}</title></circle>'
        )
    return "".join(dots)
