"""What center loss costs against the dense formula: seconds, and memory above what the caller holds.

Each formula runs in a fresh process, on the same random features and logits. Features, logits and centers are there,
and one line has gone through forward and backward pass, before the first pass that is measured. Growth is the highest
level of resident memory over three passes above the level before the first of them
(:class:`benchmarks.memory.PeakGrowth`). Only then are the flags set that a run sets
(:mod:`ppocr_ext.run.device`), which let the allocator keep what is freed, and the passes timed, after one more.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.table import machine, markdown, megabytes, threads
from ppocr_ext.errors import PPOCRExtError

TOLERANCE = 1e-5
_WORKER = "benchmarks.center_worker"
_DENSE, _OURS = "dense float64", "CenterLoss"


@dataclass(frozen=True)
class Cost:
    """What one formula took for N frames.

    Attributes:
        name: of the formula.
        seconds: of each pass, forward and backward.
        growth: bytes of memory above the level before.
    """

    name: str
    seconds: Sequence[float]
    growth: int

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Case:
    """The formulas on one batch; the dense one comes first.

    Attributes:
        frames: N.
        limit: 16·N·D bytes.
        costs: of the formulas.
        value_error: difference of our value from the dense one, as a share of that.
        gradient_error: largest difference of an entry of our gradient, as a share of the largest entry.
    """

    frames: int
    limit: int
    costs: Sequence[Cost]
    value_error: float
    gradient_error: float

    @property
    def agrees(self) -> bool:
        """Whether value and gradient are those of the dense formula; NaN is no agreement."""
        return self.value_error <= TOLERANCE and self.gradient_error <= TOLERANCE


@dataclass(frozen=True)
class CenterCosts:
    """All batches, and the setting."""

    setting: str
    cases: Sequence[Case]

    @property
    def agrees(self) -> bool:
        """Whether all of them agree."""
        return all(case.agrees for case in self.cases)

    def to_markdown(self) -> str:
        """A table, and a line on the agreement for each batch."""
        head = ["frames N", "formula", "seconds (median)", "seconds (best)", "times faster (median)"]
        head += ["peak growth, MB", "16·N·D, MB"]
        rows = [_row(case, cost) for case in self.cases for cost in case.costs]
        said = [_agreement(case) for case in self.cases]
        return f"{self.setting}\n\n{markdown(head, rows)}\n\n" + "\n".join(said)


def measure_center(
    batch: Sequence[int] = (64, 192),
    rounds: int = 5,
    frames: int = 40,
    classes: int = 6625,
    features: int = 256,
    **options: Any,
) -> CenterCosts:
    """Measure center loss against the dense formula.

    Args:
        batch: B of each batch; N is B·T.
        rounds: timed passes; the median counts.
        frames: T.
        classes: C.
        features: D.
        options: keys of ``CenterLoss``, or None; if given, it is measured with them too, beside its defaults.

    Raises:
        PPOCRExtError: a process failed, or an option cannot be used.
    """
    sizes = {"frames": frames, "classes": classes, "features": features, "rounds": rounds}
    runs: list[dict[str, Any]] = []
    given = {key: value for key, value in options.items() if value is not None}
    cases = [_case(count, sizes, given, runs) for count in batch]
    method = "" if all(found["exact"] for found in runs) else ", growth of ru_maxrss"
    setting = (
        f"C = {classes}, D = {features}, {threads()}, Paddle {_paddle_version()} on cpu, {machine()}, "
        f"{rounds} rounds{method}"
    )
    return CenterCosts(setting, cases)


def _case(
    lines: int, sizes: Mapping[str, int], options: Mapping[str, Any], runs: list[dict[str, Any]]
) -> Case:
    costs, gradients, values = [], [], []
    formulas: list[tuple[str, str, Mapping[str, Any]]] = [(_DENSE, "dense", {}), (_OURS, "ours", {})]
    if options:
        named = ", ".join(f"{key}: {value}" for key, value in options.items())
        formulas.append((f"{_OURS}, {named}", "ours", options))
    with tempfile.TemporaryDirectory() as folder:
        for name, formula, keys in formulas:
            gradient = str(Path(folder) / "gradient.npy")
            work = {"formula": formula, "lines": lines, "gradient": gradient, **sizes, **keys}
            found = in_fresh_process(_WORKER, work)
            runs.append(found)
            costs.append(Cost(name, found["seconds"], found["growth"]))
            values.append(found["value"])
            gradients.append(np.load(gradient))
    count = lines * sizes["frames"]
    return Case(
        frames=count,
        limit=16 * count * sizes["features"],
        costs=costs,
        value_error=abs(values[1] - values[0]) / abs(values[0]),
        gradient_error=float(np.abs(gradients[1] - gradients[0]).max() / np.abs(gradients[0]).max()),
    )


def _row(case: Case, cost: Cost) -> list[str]:
    return [
        f"{case.frames:,}",
        cost.name,
        f"{cost.median:.4f}",
        f"{min(cost.seconds):.4f}",
        f"{case.costs[0].median / cost.median:.1f}",
        megabytes(cost.growth),
        megabytes(case.limit),
    ]


def _agreement(case: Case) -> str:
    verdict = "agree" if case.agrees else "DISAGREE"
    return (
        f"N = {case.frames:,}: {_OURS} and the dense formula {verdict}: the value differs by {case.value_error:.1e}, "
        f"the gradient by {case.gradient_error:.1e} of its largest entry (at most {TOLERANCE:.0e})"
    )


def _paddle_version() -> str:
    for name in ("paddlepaddle", "paddlepaddle-gpu"):
        try:
            return version(name)
        except ModuleNotFoundError:  # PackageNotFoundError is one
            continue
    raise PPOCRExtError(
        "Paddle is not installed. `ppocr-ext doctor` prints the command that installs it.",
        code="missing_package",
    )
