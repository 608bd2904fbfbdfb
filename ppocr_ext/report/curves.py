"""Draw curves of runs as SVG, without a package, so that the page follows the reader's light or dark scheme.

The report page and an SVG file show the same plots.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ppocr_ext.report.page_template import RUN_COLORS, cut, esc, percent, plain, plot_style
from ppocr_ext.report.run_folder import Metrics, RunFolder, Series, origin_of

_SMOOTH_FROM = 40  # a curve of so many points gets a smoothed curve over it
_MAX_PARTS = 6  # at most so many parts of the loss have their own plot
_DASHES = ("", "8 4", "2 3", "10 3 2 3")  # a reader may not tell colours apart
_WIDTH = 370
_HEIGHT = 230
_LEFT = 48
_RIGHT = 10
_TOP = 10
_BOTTOM = 36
_MAX_POINTS = 400  # limit for one curve: a long run has more points than a screen has pixels

_SHARES = ("accuracy", "share")  # styles of a vertical axis from 0 % to 100 %

_HEALTH = (  # (key of a train line, without the name of a sub-model, title, style)
    ("blank_share", "frames that the CTC blank wins", "share"),
    ("blank_probability", "probability of the CTC blank", "share"),
    ("distinct_texts", "different texts that CTC reads in a batch", "plain"),
    ("text_length", "length of the texts that CTC reads", "plain"),
    ("nrtr_end_share", "first NRTR tokens that are </s>", "share"),
)


@dataclass(frozen=True)
class Plot:
    """One number of several runs, over the steps.

    Attributes:
        title: name of the number.
        series: the curve of each run; some may be empty.
        style: the kind of vertical axis: ``"accuracy"`` (0 to 1, with the best point marked), ``"share"`` (0 to 1),
            ``"loss"``, ``"lr"`` or ``"plain"`` (from 0).
        dotted: a second curve of each run, in its colour; some may be empty.
        over: name of the horizontal axis.
        best: the place on it of the marked point of each series, -1 for none; empty if none has one.
        limit: a value that is drawn as a line across.
    """

    title: str
    series: Sequence[Series]
    style: str = "plain"
    dotted: Sequence[Series] = ()
    over: str = "step"
    best: Sequence[int] = ()
    limit: float | None = None


@dataclass(frozen=True)
class _Scale:
    """A mapping from values to pixels, with ticks."""

    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[float]
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def plots_of(runs: Sequence[RunFolder]) -> list[Plot]:
    """Return the plots that have a number of at least one run."""
    metrics = [run.metrics for run in runs]
    best = [run.best.get("step", -1) for run in runs]
    parts = list(dict.fromkeys(part for run in metrics for part in run.loss_parts()))
    general = [run.series("eval", "general_acc") for run in metrics]
    title = "accuracy, held out" + "; dotted: general list" * any(general)
    plots = [
        Plot(title, [run.series("eval", "acc") for run in metrics], "accuracy", general, best=best),
        Plot(
            "1 − edit distance",
            [run.series("eval", "norm_edit_dis") for run in metrics],
            "accuracy",
            best=best,
        ),
        Plot("loss", [run.series("train", "loss") for run in metrics], "loss"),
        # A single part would repeat the plot of the loss.
        *(
            Plot(part, [run.loss_series(part) for run in metrics], "loss")
            for part in (parts[:_MAX_PARTS] if len(parts) > 1 else ())
        ),
        Plot("learning rate", [run.series("train", "lr") for run in metrics], "lr"),
        Plot("images/s", [run.series("train", "ips") for run in metrics]),
        *(Plot(title, [_first_series(run, key) for run in metrics], style) for key, title, style in _HEALTH),
    ]
    return [plot for plot in plots if any(plot.series)]


def _first_series(run: Metrics, key: str) -> Series:
    """Return ``key`` over the steps, or ``key_NAME`` of the first sub-model that has it."""
    keys = (name for line in run.train for name in line if name == key or name.startswith(f"{key}_"))
    return run.series("train", next(keys, key))


def draw(plots: Sequence[Plot], names: Sequence[str]) -> list[str]:
    """Draw each plot as an ``<svg>`` element; all have the same horizontal axis.

    Args:
        plots: from :func:`plots_of`.
        names: names of the runs, for the text at each point.
    """
    end = max(1, *(step for plot in plots for series in plot.series for step, _ in series))
    x = _Scale(0, end, _LEFT, _WIDTH - _RIGHT, [tick for tick in nice_ticks(0, end, 5) if tick == int(tick)])
    return [_draw(plot, names, x) for plot in plots]


def figures(plots: Sequence[Plot], names: Sequence[str], beside: str = "") -> str:
    """Return the plots with their titles as HTML, and ``beside`` them, under a legend if there are several names."""
    marks = "".join(named_mark(index, name) for index, name in enumerate(names))
    cards = "".join(
        f'<figure class="card"><figcaption>{esc(plot.title)}</figcaption>{svg}</figure>'
        for plot, svg in zip(plots, draw(plots, names), strict=True)
    )
    legend = f'<div class="legend">{marks}</div>' if len(names) > 1 else ""
    return f'{legend}<div class="grid2">{cards}{beside}</div>'


def way_plot(points: Sequence[Sequence[float]], best: int, limit: float) -> Plot:
    """Return the plot of weights between two others.

    Args:
        points: share of the way, accuracy on new lines, and on general ones, each from 0 to 1.
        best: the percent of the way that is marked, -1 for none.
        limit: the least accuracy on general lines.
    """
    series = [[(round(100 * point[0]), point[place]) for point in points] for place in (1, 2)]
    title = "weights between those before and the last ones"
    return Plot(title, series, "accuracy", (), "percent of the way", [best, best], limit)


def curves_file(runs: Sequence[RunFolder], title: str = "") -> str:
    """Return an SVG file with all plots of ``runs`` and a legend; empty if there is nothing to draw."""
    plots = plots_of(runs)
    if not plots:
        return ""
    legend = []
    for run in runs:
        best = f" (best {percent(run.best[run.indicator])} {origin_of(run.best)})" if run.best else ""
        legend.append((run.name, f"{run.name}{best}"))
    columns = min(len(plots), min((3, 4), key=lambda n: -len(plots) % n))  # 3 or 4, with fewer empty places
    return plots_file(plots, legend, columns, title)


def plots_file(
    plots: Sequence[Plot],
    legend: Sequence[tuple[str, str]],
    columns: int,
    title: str = "",
    below: tuple[str, int] = ("", 0),
) -> str:
    """Return an SVG file with plots in rows, and the legend under them.

    Args:
        plots: at least one.
        legend: name of each series, and its text in the legend.
        columns: plots in a row, each 390 wide.
        title: the text above the plots.
        below: SVG elements under the legend, drawn from (0, 0), and their height.
    """
    rows = math.ceil(len(plots) / columns)
    width = columns * (_WIDTH + 20) + 20
    top_of_legend = 50 + rows * (_HEIGHT + 40)
    parts = [
        f'<text x="{width / 2:g}" y="28" text-anchor="middle" font-weight="bold">{esc(cut(title, 40 * columns))}</text>'
    ]
    for index, (plot, svg) in enumerate(zip(plots, draw(plots, [name for name, _ in legend]), strict=True)):
        left = 20 + index % columns * (_WIDTH + 20)
        top = 50 + index // columns * (_HEIGHT + 40)
        parts.append(f'<text x="{left}" y="{top + 10}">{esc(cut(plot.title, 46))}</text>')
        parts.append(f'<g transform="translate({left} {top + 20})">{svg}</g>')
    for index, (_, text) in enumerate(legend):
        y = top_of_legend + 22 * index
        line = f'<path class="line" d="M20 {y}h30"{dash_of(index)}/>'
        parts.append(
            f'<g class="r{index % RUN_COLORS}">{line}</g><text x="58" y="{y + 5}">{esc(cut(text, 40 * columns))}</text>'
        )
    end = top_of_legend + 22 * len(legend)
    parts.append(f'<g transform="translate(0 {end})">{below[0]}</g>')
    height = end + below[1]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui,sans-serif" font-size="15"><!-- ppocr-ext --><style>{plot_style()}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def dash_of(index: int) -> str:
    """Return the SVG attribute with which neighbours differ without their colours, and 24 runs with them."""
    dash = _DASHES[(index + index // 12) % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def color_mark(index: int) -> str:
    """Return a stroke in the colour of run number ``index``."""
    line = f'<path d="M0 2H30"{dash_of(index)}/>'
    return f'<svg class="swatch r{index % RUN_COLORS}" viewBox="0 0 30 4" aria-hidden="true">{line}</svg>'


def named_mark(index: int, name: str) -> str:
    """Return the mark of run number ``index`` with its name, as HTML."""
    return f'<span class="name">{color_mark(index)}{esc(name)}</span>'


def _draw(plot: Plot, names: Sequence[str], x: _Scale) -> str:
    y = _y_scale(plot)
    right = _WIDTH - _RIGHT
    bottom = _HEIGHT - _BOTTOM
    body = []
    for tick in y.ticks:
        at = f"{y(tick):.1f}"
        label = f"{100 * tick:.0f}%" if plot.style in _SHARES else plain(tick, 3)
        body.append(f'<path class="grid" d="M{_LEFT} {at}H{right}"/>')
        body.append(f'<text class="tick" x="{_LEFT - 7}" y="{at}" dy="4" text-anchor="end">{label}</text>')
    for tick in x.ticks:
        anchor = "end" if x(tick) > right - 20 else "middle"
        place = f'x="{x(tick):.1f}" y="{bottom + 17}" text-anchor="{anchor}"'
        body.append(f'<text class="tick" {place}>{tick:,.0f}</text>')
    body.append(f'<path class="axis" d="M{_LEFT} {bottom}H{right}"/>')
    body.append(f'<text class="tick" x="{right}" y="{_HEIGHT - 3}" text-anchor="end">{plot.over}</text>')
    if plot.limit is not None:
        body.append(f'<path class="limit" d="M{_LEFT} {y(plot.limit):.1f}H{right}"/>')
    for index in reversed(range(len(plot.series))):  # the first run on top
        if plot.series[index]:
            curve = _curve(plot, index, names, x, y)
            for points in map(_thinned, plot.dotted[index : index + 1]):
                curve += _line(points, x, y, 'class="dotted"') if points else ""
                curve += _dots(points, None, f"{names[index]}, general list, {plot.over}", x, y)
            body.append(f'<g class="r{index % RUN_COLORS}">{curve}</g>')
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    return f'<svg {size} role="img" aria-label="{esc(plot.title)}">{"".join(body)}</svg>'


def _y_scale(plot: Plot) -> _Scale:
    start = _HEIGHT - _BOTTOM
    end = _TOP
    if plot.style in _SHARES:
        return _Scale(0.0, 1.0, start, end, (0, 0.25, 0.5, 0.75, 1.0))
    values = [value for series in plot.series for _, value in series if math.isfinite(value)]
    low = min(values)
    high = max(values)
    if plot.style == "loss" and low > 0 and high / low >= 20:  # a logarithmic axis shows more
        return _Scale(low / 1.15, high * 1.15, start, end, log_ticks(low / 1.15, high * 1.15), log=True)
    if plot.style == "loss":
        margin = 0.06 * (high - low)
        low -= margin
        high += margin
    else:
        low = min(0.0, low)
        high = 1.08 * high
    if high <= low:  # there is only one value
        margin = (abs(low) or 1.0) / 2
        high = low + margin
        low -= margin
    return _Scale(low, high, start, end, nice_ticks(low, high, 5))


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """Return round numbers from ``low`` to ``high``, roughly ``about`` of them."""
    rough = (high - low) / about
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 of each decade between ``low`` and ``high``, or for many decades only powers of ten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = math.ceil(len(decades) / 6)
    mantissas = (1, 2, 5) if math.log10(high / low) < 2.3 else (1,)
    ticks = (m * 10.0**d for d in decades if d % every == 0 for m in mantissas)
    return [tick for tick in ticks if low <= tick <= high]


def _curve(plot: Plot, index: int, names: Sequence[str], x: _Scale, y: _Scale) -> str:
    series = plot.series[index]
    line = f'class="line"{dash_of(index)}'
    points = _thinned(series)
    # Runs often have the same schedule. Later curves are drawn wider and behind the first, so that all can be seen.
    if plot.style == "lr" and len(names) > 1:
        line += f' style="stroke-width:{2 + 2.5 * index:g}"'
    if plot.style not in ("accuracy", "lr") and len(series) >= _SMOOTH_FROM:
        smooth = _thinned(smoothed(series, len(series) // 20))
        return _line(points, x, y, 'class="faint"') + _line(smooth, x, y, line)
    svg = _line(points, x, y, line)
    if plot.style != "accuracy":
        return svg
    best = next((each for each in series if each[0] in plot.best[index : index + 1]), None)
    return svg + _dots(points, best, f"{names[index]}, {plot.over}", x, y)


def _dots(points: Series, best: tuple[int, float] | None, about: str, x: _Scale, y: _Scale) -> str:
    """Return a dot for each evaluation, with its numbers as a tooltip; the best one is larger."""
    svg = ""
    for step, value in sorted({*points, *((best,) if best else ())}):
        if math.isfinite(value):
            kind, radius = ("best", 5.5) if (step, value) == best else ("dot", 2.6)
            place = f'class="{kind}" cx="{x(step):.1f}" cy="{y(value):.1f}" r="{radius}"'
            text = f"{esc(about)} {step:,}: {percent(value)}"
            svg += f"<circle {place}><title>{text}</title></circle>"
    return svg


def _line(points: Series, x: _Scale, y: _Scale, attributes: str) -> str:
    """Return a path through the points, broken at values that are not finite; a single point is a dot."""
    path = []
    pen = "M"
    for step, value in points:
        if math.isfinite(value):
            path.append(f"{pen}{x(step):.1f} {y(value):.1f}")
        pen = "L" if math.isfinite(value) else "M"
    if len(path) == 1:
        path.append("h0.1")
    return f'<path {attributes} d="{"".join(path)}"/>'


def _thinned(points: Series) -> Series:
    """Return at most :data:`_MAX_POINTS` points: the lowest and the highest of each stretch, in their order."""
    if len(points) <= _MAX_POINTS:
        return points
    stretch = math.ceil(2 * len(points) / _MAX_POINTS)
    kept: Series = []
    for begin in range(0, len(points), stretch):
        finite = [point for point in points[begin : begin + stretch] if math.isfinite(point[1])]
        ends = (
            {min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])} if finite else {points[begin]}
        )
        kept += sorted(ends)
    return kept


def smoothed(series: Series, reach: int) -> Series:
    """Replace each value by the mean of the finite values up to ``reach`` places away; NaN stays NaN."""
    sums = [0.0, *itertools.accumulate(v if math.isfinite(v) else 0.0 for _, v in series)]
    counts = [0, *itertools.accumulate(int(math.isfinite(v)) for _, v in series)]
    smooth = []
    for index, (step, value) in enumerate(series):
        # The window has the same width on both sides, so that the curve does not lag at its ends.
        near = min(reach, index, len(series) - 1 - index)
        first = index - near
        end = index + near + 1
        count = counts[end] - counts[first]
        smooth.append((step, (sums[end] - sums[first]) / count if math.isfinite(value) else math.nan))
    return smooth
