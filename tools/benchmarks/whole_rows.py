"""The table of what :mod:`benchmarks.whole` has measured: figures, arithmetic limits, ratios, and aims."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.limits import BACKWARD, OPERATIONS
from benchmarks.step import (
    BARE_STUDENT,
    BFLOAT16,
    CACHED,
    COMPILED,
    NETWORK,
    OPENVINO,
    OPENVINO_BFLOAT16,
    PEER,
    RECOMPUTED,
)
from benchmarks.stepping import APART
from benchmarks.table import SECTIONS, Spread, megabytes, report

Run = dict[str, Any]  # what one call has measured: `setting`, `batch`, `arithmetic`, and its sections
CACHE, CENTERS, LABELS = "teacher cache", "centers", "label check"
ENGINE = "bare forward of the engine"
MORE_TIME, MORE_MEMORY = 12.0, 1.25  # at most, for ten times the lines
_NAMES = {
    COMPILED: "live teacher",
    NETWORK: "live teacher, not compiled",
    BFLOAT16: "live teacher in bfloat16",
    OPENVINO: "live teacher by OpenVINO",
    OPENVINO_BFLOAT16: "live teacher by OpenVINO in bfloat16",
    CACHED: "teacher cache",
}
# Kind of step, what it is compared with, and the aim: at least so many times as fast as PaddleOCR, or at most so many
# times as long as a step of ours.
_STEPS: tuple[tuple[str, str, float | None], ...] = (
    (COMPILED, PEER, 2.9),
    (COMPILED, BARE_STUDENT, 1.4),
    (CACHED, PEER, 4.2),
    (CACHED, BARE_STUDENT, 1.05),
    (NETWORK, PEER, None),
    (BFLOAT16, PEER, None),
    (OPENVINO, PEER, 3.7),
    (OPENVINO_BFLOAT16, PEER, None),
    (COMPILED + APART, PEER, 2.9),
    (BFLOAT16 + APART, PEER, None),
    (OPENVINO + APART, PEER, 3.7),
    (OPENVINO_BFLOAT16 + APART, PEER, None),
    (CACHED + APART, PEER, 6.0),
    (COMPILED + RECOMPUTED, COMPILED, None),
    (CACHED + RECOMPUTED, CACHED, None),
)
KINDS = dict.fromkeys([BARE_STUDENT, *(kind for kind, _, _ in _STEPS), PEER])  # of steps
_HEAD = ("work", "figure", "arithmetic limit", "against", "ratio (of rounds)", "aim", "met")


@dataclass(frozen=True)
class Row:
    """One comparison: what was measured, its figure, and what the machine's arithmetic allows.

    ``against`` (empty without a checkout of PaddleOCR) is what it is compared with. ``met`` is True if the ratio
    reaches the aim, and None without an aim.
    """

    work: str
    figure: str
    limit: str
    against: str = ""
    ratio: str = ""
    aim: str = ""
    met: bool | None = None

    def cells(self) -> list[str]:
        """Return the cells of a row."""
        verdict = {True: "yes", False: "no", None: ""}[self.met]
        return [self.work, self.figure, self.limit, self.against, self.ratio, self.aim, verdict]


def to_markdown(runs: Sequence[Run]) -> str:
    """Return a table of all that was measured, the settings of the runs, and whether the results agree."""
    settings = [f"{run['setting']}{_speed(run)}" for run in runs]
    if len(runs) > 1:
        sections = [", ".join(name for name in SECTIONS if name in run) for run in runs]
        settings = [f"- {names}: {text}" for names, text in zip(sections, settings, strict=True)]
    disagree = "" if agrees(runs) else "RESULTS DISAGREE: see the JSON file."
    return report("\n".join(settings), (_HEAD, [row.cells() for row in rows(runs)]), disagree)


def agrees(runs: Sequence[Run]) -> bool:
    """Return whether accuracy and centers are PaddleOCR's, and all usable lines were accepted."""
    return all(run[name]["agrees"] for run in runs for name in ("eval", "center", "data") if name in run)


def _speed(run: Run) -> str:
    for part in (run, run.get("data", {})):
        if "arithmetic" in part:
            return f"; products of matrices reach {part['arithmetic']['speed'] / 1e9:,.0f} GFLOP/s"
    return ""


def rows(runs: Sequence[Run]) -> Iterator[Row]:
    """Yield a row for each comparison that was measured."""
    for name in SECTIONS:
        for run in runs:
            if name in run:
                yield from _ROWS[name](run)


def step_limit(run: Run, kind: str) -> float | None:
    """Return the least seconds for the arithmetic of a step; None for bfloat16, whose products are not timed."""
    if kind == PEER or _plain(kind) in (BFLOAT16, OPENVINO_BFLOAT16):
        return None
    per_image = (1 + BACKWARD) * run["arithmetic"]["student"]
    if _plain(kind) not in (BARE_STUDENT, CACHED):
        per_image += run["arithmetic"]["teacher"]
    return float(OPERATIONS * per_image * run["batch"] / run["arithmetic"]["speed"])


def image_limit(run: Run, network: str = "reading") -> float:
    """Return the most images a second of a forward pass."""
    arithmetic = run["arithmetic"]
    return float(arithmetic["speed"] / (OPERATIONS * arithmetic[network]))


def name_of_step(kind: str) -> str:
    """Return a kind of step in words."""
    plain = _plain(kind)
    return _NAMES.get(plain, plain) + kind.removeprefix(plain)


def _plain(kind: str) -> str:
    return kind.removesuffix(APART).removesuffix(RECOMPUTED)


def _of_steps(run: Run) -> Iterator[Row]:
    seconds, batch = run["step"], run["batch"]

    def cells(kind: str) -> tuple[str, str, str]:
        median, limit = statistics.median(seconds[kind]), step_limit(run, kind)
        figure = f"{median:.3f} s ({batch / median:.1f} images/s)"
        return f"distillation step, {name_of_step(kind)}", figure, "" if limit is None else f"{limit:.3f} s"

    pairs = [each for each in _STEPS if each[0] in seconds and each[1] in seconds]
    for kind in dict.fromkeys(each[0] for each in _STEPS if each[0] in seconds):
        if kind not in {each[0] for each in pairs}:
            yield Row(*cells(kind))
    for kind, other, aim in pairs:
        faster = other == PEER
        pair = (seconds[other], seconds[kind]) if faster else (seconds[kind], seconds[other])
        ratio = Spread.of_ratios(*pair)
        against, verdict = f"{other}: {cells(other)[1]}", _aim(ratio.median, aim, at_least=faster)
        yield Row(*cells(kind), against, f"{ratio} × {'as fast' if faster else 'as long'}", *verdict)


def _of_images(run: Run, section: str, work: str, others: Sequence[tuple[str, float]]) -> Iterator[Row]:
    speeds = {kind: each for kind, each in run[section].items() if kind != "agrees"}
    medians = {kind: statistics.median(each) for kind, each in speeds.items()}
    ours = f"{medians[COMPILED]:.1f} images/s", f"{image_limit(run):.0f} images/s"
    if not any(other in medians for other, _ in others):
        yield Row(work, *ours)
    for other, aim in others:
        if other in medians:
            ratio = medians[COMPILED] / medians[other]
            text = f"{ratio:.2f}"  # PaddleOCR's passes run in another process: there are no common rounds
            if other != PEER:
                spread = Spread.of_ratios(speeds[COMPILED], speeds[other])
                ratio, text = spread.median, f"{spread}"
            against, verdict = f"{other}: {medians[other]:.1f} images/s", _aim(ratio, aim, at_least=True)
            yield Row(work, *ours, against, f"{text} × as fast", *verdict)


def _of_memory(run: Run) -> Iterator[Row]:
    peaks = {kind: f"{megabytes(peak)} MB" for kind, peak in run["memory"].items()}
    limit = f"{megabytes(run['arithmetic']['weights'])} MB"
    for kind, other, aim in (
        (COMPILED, PEER, 0.6),
        (CACHED, PEER, None),
        (COMPILED + RECOMPUTED, PEER, 0.6),
        (CACHED + RECOMPUTED, PEER, 0.6),
        (COMPILED, BARE_STUDENT, None),
        (CACHED, BARE_STUDENT, None),
    ):
        if kind in peaks and other in peaks:
            ratio = run["memory"][kind] / run["memory"][other]
            yield Row(
                f"peak memory of a step, {name_of_step(kind)}",
                peaks[kind],
                limit,
                f"{other}: {peaks[other]}",
                f"{ratio:.2f}",
                *_aim(ratio, aim, at_least=False),
            )


def _of_data(run: Run) -> Iterator[Row]:
    data = run["data"]
    limits = {CACHE: image_limit(data, "teacher"), CENTERS: image_limit(data), LABELS: data[LABELS]["limit"]}
    for name, limit in limits.items():
        lines, seconds, peak = (data[name][key] for key in ("lines", "seconds", "peak"))
        for few, many in zip(range(len(lines)), range(1, len(lines)), strict=False):
            factor = lines[many] / lines[few]
            time, memory = seconds[many] / seconds[few], peak[many] / peak[few]
            most = MORE_TIME / 10 * factor
            yield Row(
                f"{name}, {lines[many]:,} lines",
                f"{lines[many] / seconds[many]:,.0f} lines/s, {megabytes(peak[many])} MB",
                f"{limit:,.0f} lines/s",
                f"{lines[few]:,} lines: {megabytes(peak[few])} MB",
                f"{time:.2f} × the time, {memory:.2f} × the memory",
                f"≤ {most:g}, ≤ {MORE_MEMORY}",
                time <= most and memory <= MORE_MEMORY,
            )


def _aim(ratio: float, aim: float | None, *, at_least: bool) -> tuple[str, bool | None]:
    if aim is None:
        return "", None
    return (f"≥ {aim:g}", ratio >= aim) if at_least else (f"≤ {aim:g}", ratio <= aim)


_ROWS: dict[str, Callable[[Run], Iterator[Row]]] = {
    "step": _of_steps,
    "eval": partial(_of_images, section="eval", work="evaluation", others=((PEER, 25.0),)),
    "center": partial(
        _of_images, section="center", work="center export", others=((PEER, 25.0), (ENGINE, 0.9))
    ),
    "memory": _of_memory,
    "data": _of_data,
}
