"""What compiling a network saves: seconds of a batch, against the network in the same process, and peak memory."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from benchmarks.fresh import in_fresh_process
from benchmarks.sizes import SIZES
from benchmarks.table import machine, markdown, megabytes, threads
from ppocr_ext.config.global_keys import FLOAT32
from ppocr_ext.inference import runners
from ppocr_ext.inference.comparison import BFLOAT16_TOLERANCE, TOLERANCE
from ppocr_ext.inference.runners import has_bfloat16

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
_WORKER = "benchmarks.engine_worker"


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
            ratios = [one / other for one, other in zip(self.seconds[what, NETWORK], times, strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
            first = f"{self.first[what, how]:.1f}" if (what, how) in self.first else ""
            rows.append(
                [what, how, f"{statistics.median(times):.3f}", f"{min(times):.3f}", spread]
                + [megabytes(self.peak[what, how]), first]
            )
        head = ["pass", "by", "seconds (median)", "seconds (best)", "faster by (of rounds)"]
        head += ["peak memory, MB", "first pass, s"]
        verdict = "agree" if self.agrees else "DISAGREE"
        return (
            f"{self.setting}\n\n{markdown(head, rows)}\n\nOutputs {verdict}: they differ by {self.difference:.1e} of "
            f"the largest value at most (limit {TOLERANCE:.0e}); in bfloat16 by {self.bfloat16_difference:.2%} in the "
            f"root mean square (limit {BFLOAT16_TOLERANCE:.0%})"
        )


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
    costs = EngineCosts(
        f"{size}: batch {batch}, {height}x{width}, {threads()}, {machine()}, {rounds} rounds",
    )
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
