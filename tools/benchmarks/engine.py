"""What a compiled network saves: seconds of a batch against the network in the same process, and peak memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle

from benchmarks.fresh import in_fresh_process
from benchmarks.memory import peak_memory
from benchmarks.sizes import SIZES, networks_of
from benchmarks.step import batch_of, installed
from benchmarks.table import Spread, megabytes, processor, report, threads, verdict
from ppocr_ext.config.global_keys import FLOAT32
from ppocr_ext.inference import runners
from ppocr_ext.inference.comparison import BFLOAT16_TOLERANCE, TOLERANCE
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.modeling import EVAL, TRAIN, build_model
from ppocr_ext.run.context import tune_cpu

TEACHER, STUDENT = "teacher, all outputs", "student, evaluation"
NETWORK, COMPILED, BFLOAT16 = "network", "compiled", "compiled, bfloat16"
ENGINES = {  # engine and type by the name in the tables
    COMPILED: (runners.PADDLE, FLOAT32),
    "ONNX Runtime": (runners.ONNXRUNTIME, FLOAT32),
    "OpenVINO": (runners.OPENVINO, FLOAT32),
    BFLOAT16: (runners.PADDLE, "bfloat16"),
    "OpenVINO, bfloat16": (runners.OPENVINO, "bfloat16"),
}
Kind = tuple[str, str]  # a pass, and what computes it
_WORKER = "benchmarks.engine:measure_passes"


@dataclass
class EngineCosts:
    """Seconds and peak memory by the kind of pass."""

    setting: str
    difference: float  # largest of an output in float32, as a share of the largest value
    bfloat16_difference: float  # root mean square of the differences in bfloat16, as a share of the output's
    seconds: dict[Kind, list[float]]  # of each round
    # Seconds of the first pass of compiled networks; it makes the graph if none is stored. Types of one engine share a
    # graph, and all engines use Paddle's.
    first: dict[Kind, float]
    peak: dict[Kind, int]  # bytes of a process that only does this kind

    @property
    def agrees(self) -> bool:
        """True if the outputs are close enough; NaN is no agreement."""
        return self.difference <= TOLERANCE and self.bfloat16_difference <= BFLOAT16_TOLERANCE

    def to_markdown(self) -> str:
        """Return a table with ratios to the network itself."""
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
        result = (
            f"Outputs {verdict(self.agrees)}: they differ by at most {self.difference:.1e} of the largest value (limit "
            f"{TOLERANCE:.0e}); in bfloat16 by {self.bfloat16_difference:.2%} in the root mean square (limit "
            f"{BFLOAT16_TOLERANCE:.0%})"
        )
        return report(self.setting, (head, rows), result)


def measure_engine(size: str, batch: int = 16, rounds: int = 5) -> EngineCosts:
    """Measure the teacher's pass of a distillation step, and the student's of an evaluation.

    Args:
        size: key of ``SIZES``.
        batch: images.
        rounds: measured rounds after one to warm up; all kinds take turns.
    """
    height, width = SIZES[size][1]
    teacher = installed(ENGINES)
    student = [how for how, (_, dtype) in teacher.items() if dtype == FLOAT32]
    kinds = [(TEACHER, how) for how in (NETWORK, *teacher)] + [(STUDENT, how) for how in (NETWORK, *student)]

    def measure(passes: list[Kind]) -> dict[str, Any]:
        return in_fresh_process(_WORKER, {"size": size, "batch": batch, "passes": passes})

    result = measure(kinds * (rounds + 1))
    seconds = {kind: result["seconds"][place :: len(kinds)] for place, kind in enumerate(kinds)}
    return EngineCosts(
        f"{size}: batch {batch}, {height}x{width}, {threads()}, {processor()}, {rounds} rounds",
        result["difference"],
        result["bfloat16_difference"],
        seconds={kind: times[1:] for kind, times in seconds.items()},
        first={kind: times[0] for kind, times in seconds.items() if kind[1] != NETWORK},
        peak={kind: measure([kind])["peak"] for kind in kinds},
    )


def measure_passes(size: str, batch: int, passes: list[list[str]]) -> dict[str, Any]:
    """Do passes over one batch, one after another; the first pass of each kind compiles and warms up.

    Returns:
        ``seconds`` of each pass, ``peak`` memory of the process in bytes, and the differences of
        :class:`EngineCosts`.
    """
    tune_cpu()
    (height, width), (config, charset) = SIZES[size][1], networks_of(size)
    paddle.seed(0)
    models = build_model(config.at("Architecture").thaw()).models
    images, *labels = batch_of(config, charset, batch, height, width)
    calls: dict[Kind, Callable[[], Any]] = {}
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
    outputs: dict[Kind, Any], dtype: str, size: Callable[[np.ndarray], float], least: float = 0.0
) -> float:
    """Return the largest size of a difference from a network's output, as a share of that output's size."""
    shares = [0.0]
    for what, how in outputs:
        if how != NETWORK and ENGINES[how][1] == dtype and (what, NETWORK) in outputs:
            pair = (paddle.utils.flatten(outputs[what, each]) for each in (NETWORK, how))
            for left, right in zip(*pair, strict=True):
                shares.append(size(left.numpy() - right.numpy()) / max(least, size(left.numpy())))
    return max(shares)
