"""What the pass that makes centers costs: images/s against the bare forward passes, and peak memory.

Throughput is measured in one process, the passes taken in turns over the same loader. Memory is the peak of a fresh
process that does one pass of one kind, with all that it has loaded. A PaddleOCR checkout is measured with the config as
it is (teacher and student run) and with the student alone; its centers must be ours.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.peer import require_peer
from benchmarks.table import machine, megabytes, report, threads, verdict
from ppocr_ext.errors import PPOCRExtError

TOLERANCE = 1e-5
BARE, ENGINE, OURS = "bare eval forward", "bare forward of the engine", "ppocr_ext, centers"
WHOLE, ALONE = "PaddleOCR, distillation config", "PaddleOCR, student alone"
_MODULE = "benchmarks.export_center"


@dataclass
class ExportCosts:
    """What was measured, and the setting.

    Attributes:
        setting: in words.
        images_per_second: of each pass, by what was measured.
        peak: bytes of memory, by what was measured.
        error: largest difference of a center from PaddleOCR's, as a share of the largest entry of the centers;
            infinite where the classes differ; None without a checkout.
    """

    setting: str
    images_per_second: dict[str, Sequence[float]] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    error: float | None = None

    @property
    def agrees(self) -> bool:
        """Whether the centers are PaddleOCR's, where these are known; NaN is no agreement."""
        return self.error is None or self.error <= TOLERANCE

    def median(self, name: str) -> float:
        """Images a second."""
        return statistics.median(self.images_per_second[name])

    def to_markdown(self) -> str:
        """A table with ratios to the engine's bare forward pass, and what follows from the checkout's rows."""
        bare, ours = self.median(ENGINE), self.median(OURS)
        rows = [
            [name, f"{self.median(name):.1f}", f"{max(speeds):.1f}", f"{self.median(name) / bare:.2f}"]
            + [f"{ours / self.median(name):.2f}", megabytes(self.peak[name])]
            for name, speeds in self.images_per_second.items()
        ]
        head = ["pass", "images/s (median)", "images/s (best)", "of the engine's bare forward"]
        head += ["centers are faster by", "peak memory, MB"]
        said = "" if self.error is None else f"they differ by {self.error:.1e} of the largest entry"
        said = (
            said and f"The centers and PaddleOCR's {verdict(self.agrees)}: {said} (at most {TOLERANCE:.0e})"
        )
        return report(self.setting, (head, rows), said)


def measure_export_center(
    size: str,
    batch: int = 16,
    lines: int = 128,
    frames: str = "argmax",
    rounds: int = 5,
    peer: str | None = None,
) -> ExportCosts:
    """Measure the pass that makes centers, on a distillation's student.

    Args:
        size: ``"tiny"`` (the quickstart's models) or ``"full"`` (SVTRv2 teacher, RepSVTR student).
        batch: lines in a batch.
        lines: of a pass.
        frames: ``"argmax"`` or ``"aligned"``; with a checkout it must be the first.
        rounds: measured passes of each kind after one to warm up; the median counts.
        peer: folder of a PaddleOCR checkout to measure as well.

    Raises:
        PPOCRExtError: a process failed, or ``frames`` are not those of PaddleOCR.
        HostError: ``peer`` is no checkout.
    """
    if peer is not None:
        require_peer(Path(peer))
        if frames != "argmax":
            raise PPOCRExtError(
                "PaddleOCR's centers are of argmax frames. Fix: remove --frames, or --peer.",
                code="conflicting_options",
            )
    costs = ExportCosts(f"{size}: {lines} lines")
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        given = {"folder": folder, "size": size, "lines": lines, "batch": batch}
        prepared = in_fresh_process(f"{_MODULE}_data:prepare", given)
        read = _measure_ours(costs, folder, frames, rounds)
        if peer is not None:
            _measure_peer(costs, folder, Path(peer), rounds)
    costs.setting += (
        f" ({read} read correctly), batch {batch}, {prepared['setting']}, {threads()}, {machine()}, "
    )
    costs.setting += f"frames: {frames}, {rounds} rounds"
    return costs


def _measure_ours(costs: ExportCosts, folder: str, frames: str, rounds: int) -> str:
    """How many lines were read correctly, in words."""
    kinds = {BARE: "bare", ENGINE: "engine", OURS: "centers"}
    passes = list(kinds.values())
    for turn in range(rounds):  # bare, engine, centers | centers, engine, bare | …: none always comes first
        passes += list(kinds.values())[:: -1 if turn % 2 else 1]
    work: dict[str, Any] = {"folder": folder, "frames": frames}
    speeds = in_fresh_process(f"{_MODULE}_worker", {**work, "passes": passes})["images_per_second"]
    measured = list(zip(passes, speeds, strict=True))[len(kinds) :]
    read = ""
    for name, kind in kinds.items():
        costs.images_per_second[name] = [speed for one, speed in measured if one == kind]
        once = in_fresh_process(f"{_MODULE}_worker", {**work, "passes": [kind]})
        costs.peak[name] = once["peak"]
        if once["correct"] is not None:
            read = "all" if once["correct"] == once["lines"] else f"{once['correct']} of {once['lines']}"
    return read


def _measure_peer(costs: ExportCosts, folder: str, root: Path, rounds: int) -> None:
    errors = []
    for name, distillation in ((WHOLE, True), (ALONE, False)):
        work = {"folder": folder, "root": str(root.resolve()), "distillation": distillation, "rounds": rounds}
        once = in_fresh_process(f"{_MODULE}_peer", work)
        costs.images_per_second[name], costs.peak[name] = once["images_per_second"], once["peak"]
        errors.append(difference(Path(folder) / "ours.npz", Path(folder) / "peer.npz"))
    costs.error = float(np.max(errors))  # NaN stays NaN


def difference(ours: Path, peers: Path) -> float:
    """Largest difference of an entry of two files' centers, as a share of the largest entry of the second.

    Infinite where their classes differ.
    """
    with np.load(ours) as one, np.load(peers) as other:
        if not np.array_equal(one["class_ids"], other["class_ids"]):
            return float("inf")
        return float(np.abs(one["centers"] - other["centers"]).max() / np.abs(other["centers"]).max())
