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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks.fresh import in_fresh_process
from benchmarks.memory import PeakGrowth
from benchmarks.table import machine, megabytes, report, threads, verdict
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.charset import Charset
from ppocr_ext.losses import CenterLoss, LossContext
from ppocr_ext.run.device import tune_cpu

TOLERANCE = 1e-5
_DENSE, _OURS = "dense float64", "CenterLoss"
_CHARACTERS = 0x4E00  # the first of the CJK block: any symbols will do
_LENGTH = 25  # characters that a label has room for
_WEIGHED = 3  # passes of which the memory is measured
_FLOOR, _CEILING = 1e-12, 1e12  # between which the dense form holds its distances
Formula = Callable[[paddle.Tensor, paddle.Tensor, list[paddle.Tensor]], paddle.Tensor]


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
        return report(self.setting, (head, rows), "\n".join(_agreement(case) for case in self.cases))


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
        f"C = {classes}, D = {features}, {threads()}, Paddle {paddle.__version__} on cpu, {machine()}, "
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
            found = in_fresh_process("benchmarks.center:measure_formula", work)
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
    return (
        f"N = {case.frames:,}: {_OURS} and the dense formula {verdict(case.agrees)}: the value differs by "
        f"{case.value_error:.1e}, the gradient by {case.gradient_error:.1e} of its largest entry (at most "
        f"{TOLERANCE:.0e})"
    )


def measure_formula(
    formula: str,
    lines: int,
    frames: int,
    classes: int,
    features: int,
    rounds: int,
    gradient: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Forward and backward pass on random features and logits.

    Args:
        formula: ``"dense"``, or ``"ours"``.
        lines: B; ``frames``: T; ``classes``: C; ``features``: D.
        rounds: passes that are timed.
        gradient: file that the gradient of the features [B, T, D] is written to (``.npy``).
        options: keys of :class:`~ppocr_ext.losses.CenterLoss`.

    Returns:
        ``seconds`` of each pass, ``growth`` in bytes over the passes before them, ``exact``: whether that is what
        :class:`~benchmarks.memory.PeakGrowth` calls exact, and ``value``.
    """
    paddle.set_device("cpu")
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((classes, features), dtype="float32")
    loss = _dense(centers) if formula == "dense" else _ours(centers, options)
    _step(loss, *_inputs(rng, 1, frames, classes, features))  # what is set up once is no growth
    given = _inputs(np.random.default_rng(1), lines, frames, classes, features)
    growth = PeakGrowth()
    for _ in range(_WEIGHED):
        _step(loss, *given)
    found: dict[str, Any] = {"growth": growth.bytes, "exact": growth.exact, "seconds": []}
    tune_cpu()  # it lets the allocator keep what is freed, which would be taken for growth
    value, of_features = _step(loss, *given)
    for _ in range(rounds):
        began = time.perf_counter()
        _step(loss, *given)
        found["seconds"].append(time.perf_counter() - began)
    if gradient is not None:
        np.save(gradient, of_features.numpy())
    return {**found, "value": float(value)}


def _inputs(
    rng: np.random.Generator, lines: int, frames: int, classes: int, features: int
) -> tuple[paddle.Tensor, paddle.Tensor, list[paddle.Tensor]]:
    """Features [B, T, D], logits [B, T, C], and a batch with labels [B, L] and lengths [B]."""
    of_frames = paddle.to_tensor(rng.standard_normal((lines, frames, features), dtype="float32"))
    logits = paddle.to_tensor(rng.standard_normal((lines, frames, classes), dtype="float32"))
    longest = min(_LENGTH, max(1, frames // 2))  # repeats need a blank between them
    label = rng.integers(1, classes, (lines, longest), dtype="int64")
    length = rng.integers(1, longest + 1, lines, dtype="int64")
    image = paddle.zeros([lines, 1, 1, 1])
    return of_frames, logits, [image, paddle.to_tensor(label), paddle.to_tensor(length)]


def _step(
    loss: Formula, features: paddle.Tensor, logits: paddle.Tensor, batch: list[paddle.Tensor]
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Value, and gradient [B, T, D]; features are a leaf of this pass alone, whose gradient goes with it."""
    leaf = features.detach()
    leaf.stop_gradient = False
    value = loss(leaf, logits, batch)
    value.backward()
    return value, leaf.grad


def _ours(centers: np.ndarray, options: dict[str, Any]) -> Formula:
    classes, features = centers.shape
    charset = Charset(tuple(chr(_CHARACTERS + i) for i in range(classes - 1)))
    known = np.ones(classes, np.int64)
    table = CenterTable(np.arange(classes), charset.ctc_symbols, centers, known, np.zeros(classes))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centers.npz"
        table.save(path)
        context = LossContext(charset, {None: features})
        named = {"frames" if key == "labels" else key: value for key, value in options.items()}
        loss = CenterLoss(center_file_path=str(path), context=context, **named)
    return lambda features, logits, batch: loss((features, logits), batch)["loss"]


def _dense(centers: np.ndarray) -> Formula:
    """The textbook form in float64: all distances [N, C], and a mask that leaves one of each row."""
    of_classes = paddle.to_tensor(centers.astype("float64"))
    classes, size = centers.shape

    def loss(features: paddle.Tensor, logits: paddle.Tensor, batch: list[paddle.Tensor]) -> paddle.Tensor:
        rows = features.reshape([-1, size]).astype("float64")
        squares = rows.square().sum(axis=1, keepdim=True) + of_classes.square().sum(axis=1).unsqueeze(0)
        distances = squares - 2.0 * paddle.matmul(rows, of_classes, transpose_y=True)
        best = logits.argmax(axis=-1).reshape([-1, 1])
        mask = (best == paddle.arange(classes).unsqueeze(0)).astype("float64")
        return (distances * mask).clip(_FLOOR, _CEILING).sum() / rows.shape[0]

    return loss
