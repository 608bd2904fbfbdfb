"""What compiling a network saves: seconds of a batch, against the network in the same process, and peak memory."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from benchmarks.fresh import in_fresh_process
from benchmarks.sizes import SIZES
from benchmarks.table import machine, markdown, megabytes, threads
from ppocr_ext.engine.network_graph import BFLOAT16_TOLERANCE, TOLERANCE
from ppocr_ext.engine.predictor import has_bfloat16

TEACHER, STUDENT = "teacher, all outputs", "student, evaluation"
NETWORK, COMPILED, BFLOAT16 = "network", "compiled", "compiled, bfloat16"
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
        first: seconds of the first pass of what is compiled, without a stored graph if there was none.
    """

    setting: str
    difference: float = 0.0
    bfloat16_difference: float = 0.0
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    peak: dict[tuple[str, str], int] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)

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
            first = f"{self.first[what]:.1f}" if how == COMPILED else ""  # the other has its graph
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
    kinds = [(what, how) for what in (TEACHER, STUDENT) for how in (NETWORK, COMPILED)]
    if has_bfloat16():
        kinds.insert(2, (TEACHER, BFLOAT16))
    passes = kinds * (rounds + 1)
    found = in_fresh_process(_WORKER, {"size": size, "batch": batch, "passes": passes})
    costs.difference, costs.bfloat16_difference = found["difference"], found["bfloat16_difference"]
    costs.first = {what: found["seconds"][kinds.index((what, COMPILED))] for what in (TEACHER, STUDENT)}
    for index, kind in enumerate(kinds):
        costs.seconds[kind] = found["seconds"][index + len(kinds) :: len(kinds)]
        once = in_fresh_process(_WORKER, {"size": size, "batch": batch, "passes": [kind]})
        costs.peak[kind] = once["peak"]
    return costs
