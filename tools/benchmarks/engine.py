"""What compiling a network saves: seconds of a batch, against the network in the same process, and peak memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import paddle

from benchmarks.fresh import in_fresh_process
from benchmarks.memory import peak_memory
from benchmarks.sizes import SIZES, networks_of
from benchmarks.step import batch_of
from benchmarks.table import Spread, machine, megabytes, report, threads, verdict
from ppocr_ext.config.global_keys import FLOAT32
from ppocr_ext.inference import runners
from ppocr_ext.inference.comparison import BFLOAT16_TOLERANCE, TOLERANCE
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.inference.runners import has_bfloat16
from ppocr_ext.modeling import EVAL, TRAIN, build_model
from ppocr_ext.run.device import tune_cpu

TEACHER, STUDENT = "teacher, all outputs", "student, evaluation"
NETWORK, COMPILED, BFLOAT16 = "network", "compiled", "compiled, bfloat16"
OPENVINO_BFLOAT16 = "OpenVINO, bfloat16"
# engine and type by what is in the tables
ENGINES = {
    COMPILED: (runners.PADDLE, FLOAT32),
    "ONNX Runtime": (runners.ONNXRUNTIME, FLOAT32),
    "OpenVINO": (runners.OPENVINO, FLOAT32),
    BFLOAT16: (runners.PADDLE, "bfloat16"),
    OPENVINO_BFLOAT16: (runners.OPENVINO, "bfloat16"),
}
_WORKER = "benchmarks.engine:measure_passes"


@dataclass
class EngineCosts:
    """Seconds and peak memory by what was measured, and how.

    Attributes:
        setting: in words.
        difference: largest of an output in float32, as a share of the largest value.
        bfloat16_difference: root mean square of those of an output in bfloat16, as a share of the output's.
        seconds: of a batch.
        peak: bytes of a process with one kind alone.
        first: seconds of the first pass of what is compiled, without a stored graph if there was none. Types of one
            engine share a graph, and all engines Paddle's.
    """

    setting: str
    difference: float = 0.0
    bfloat16_difference: float = 0.0
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    peak: dict[tuple[str, str], int] = field(default_factory=dict)
    first: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """True if outputs are near enough; NaN is no agreement."""
        return self.difference <= TOLERANCE and self.bfloat16_difference <= BFLOAT16_TOLERANCE

    def to_markdown(self) -> str:
        """A table with ratios to the network itself."""
        rows = []
        for (what, how), times in self.seconds.items():
            first = f"{self.first[what, how]:.1f}" if (what, how) in self.first else ""
            rows.append(
                [what, how, f"{statistics.median(times):.3f}", f"{min(times):.3f}"]
                + [str(Spread.of_ratios(self.seconds[what, NETWORK], times))]
                + [megabytes(self.peak[what, how]), first]
            )
        head = ["pass", "by", "seconds (median)", "seconds (best)", "faster by (of rounds)"]
        head += ["peak memory, MB", "first pass, s"]
        said = (
            f"Outputs {verdict(self.agrees)}: they differ by {self.difference:.1e} of the largest value at most (limit "
            f"{TOLERANCE:.0e}); in bfloat16 by {self.bfloat16_difference:.2%} in the root mean square (limit "
            f"{BFLOAT16_TOLERANCE:.0%})"
        )
        return report(self.setting, (head, rows), said)


def measure_engine(size: str, batch: int = 16, rounds: int = 5) -> EngineCosts:
    """Measure the teacher's pass of a distillation step, and the student's of an evaluation.

    Args:
        size: ``"tiny"`` (the quickstart's models) or ``"full"`` (SVTRv2 teacher, RepSVTR student).
        batch: images.
        rounds: measured rounds after one to warm up; all kinds are taken in turns.

    Raises:
        PPOCRExtError: a process failed.
    """
    height, width = SIZES[size][1]
    costs = EngineCosts(f"{size}: batch {batch}, {height}x{width}, {threads()}, {machine()}, {rounds} rounds")
    kinds = [(what, how) for what in (TEACHER, STUDENT) for how in (NETWORK, *_installed(what))]
    passes = kinds * (rounds + 1)
    found = in_fresh_process(_WORKER, {"size": size, "batch": batch, "passes": passes})
    costs.difference, costs.bfloat16_difference = found["difference"], found["bfloat16_difference"]
    costs.first = {
        kind: first for kind, first in zip(kinds, found["seconds"], strict=False) if kind[1] != NETWORK
    }
    for index, kind in enumerate(kinds):
        costs.seconds[kind] = found["seconds"][index + len(kinds) :: len(kinds)]
        once = in_fresh_process(_WORKER, {"size": size, "batch": batch, "passes": [kind]})
        costs.peak[kind] = once["peak"]
    return costs


def _installed(what: str) -> list[str]:
    """Return what can compute a pass on this machine; the student has float32 only."""
    types = [FLOAT32] + ["bfloat16"] * (what == TEACHER and has_bfloat16())
    return [
        how
        for how, (engine, dtype) in ENGINES.items()
        if dtype in types and engine in (runners.PADDLE, *runners.other_engines(dtype))
    ]


def measure_passes(size: str, batch: int, passes: list[list[str]]) -> dict[str, Any]:
    """Passes over one batch, one after another.

    Args:
        size: ``"tiny"`` or ``"full"``.
        batch: images.
        passes: what and how: the teacher with all that losses can read, or the student in evaluation; the network or
            what is compiled of it. The first pass of each kind compiles and warms up.

    Returns:
        ``seconds`` of each pass, ``peak`` memory of the process in bytes, the largest ``difference`` of an output from
        the network's, as a share of the largest value (at least 1), and ``bfloat16_difference``: the largest root mean
        square of the differences in bfloat16, as a share of the output's.
    """
    tune_cpu()
    (height, width), (config, charset) = SIZES[size][1], networks_of(size)
    paddle.seed(0)
    models = build_model(config.at("Architecture").thaw()).models
    images, *labels = batch_of(config, charset, batch, height, width)
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for what, network, request in ((TEACHER, models["Teacher"], TRAIN), (STUDENT, models["Student"], EVAL)):
        network.eval()
        calls[what, NETWORK] = partial(network, images, labels, request)
        for how, (engine, dtype) in ENGINES.items():
            if [what, how] in passes:
                compiled = CompiledNetwork(network, request, name=what, dtype=dtype, engine=engine)
                calls[what, how] = partial(compiled, images, labels, request)
    seconds, outputs = [], {}
    with paddle.no_grad():
        for what, how in passes:
            began = time.perf_counter()
            outputs[what, how] = calls[what, how]()
            seconds.append(time.perf_counter() - began)
    return {
        "seconds": seconds,
        "peak": peak_memory(),
        "difference": _difference(outputs, "float32", lambda values: float(np.abs(values).max()), 1.0),
        "bfloat16_difference": _difference(
            outputs, "bfloat16", lambda values: float((values**2).mean() ** 0.5)
        ),
    }


def _difference(
    outputs: dict[tuple[str, str], Any], dtype: str, size: Callable[[np.ndarray], float], least: float = 0.0
) -> float:
    """Return the largest size of a difference from a network's output, as a share of that output's size."""
    found = [0.0]
    for what, how in outputs:
        if how != NETWORK and ENGINES[how][1] == dtype and (what, NETWORK) in outputs:
            pair = (paddle.utils.flatten(outputs[what, each]) for each in (NETWORK, how))
            for left, right in zip(*pair, strict=True):
                found.append(size(left.numpy() - right.numpy()) / max(least, size(left.numpy())))
    return max(found)
