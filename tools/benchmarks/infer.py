"""How fast an exported recogniser reads: each network, engine, batch and number of threads, taken in turns in one run.

Beside the engines alone, `Recognizer.read` is measured over encoded images, against the engine's bare loop over the
same images, already prepared.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.peer import require_peer
from benchmarks.table import Table, circumstances, report, verdict

TOLERANCE = 1e-3  # of a probability, between the engines
# networks
TEACHER, STUDENT = "teacher", "student"
UNFOLDED, PEER = "student, not re-parameterised", "student, as PaddleOCR exports it"
# engines
RUNTIME, ONEDNN, PLAIN = "ONNX Runtime", "Paddle, oneDNN", "Paddle, without oneDNN"
# over the same images: the engine's bare loop, and the reading
BARE, READ = "bare engine", "Recognizer.read"
_MODULE = "benchmarks.infer"


@dataclass(frozen=True)
class Speed:
    """One kind of call.

    Attributes:
        threads: of the engine.
        batch: images of a batch.
        what: a network, the bare engine over the images to read, or the reading.
        engine: name.
        images: of a call.
        seconds: of each call.
        cpu_seconds: of each call, of all threads: what the machine does besides does not count.
    """

    threads: int
    batch: int
    what: str
    engine: str
    images: int
    seconds: Sequence[float]
    cpu_seconds: Sequence[float]

    @property
    def best(self) -> float:
        """Images a second in the fastest call."""
        return self.images / min(self.seconds)

    @property
    def cpu(self) -> float:
        """Milliseconds of CPU time for an image in the call that took least."""
        return min(self.cpu_seconds) / self.images * 1000

    def milliseconds(self, percent: float) -> float:
        """Return the time that so many percent of the calls need at most."""
        return float(np.percentile(self.seconds, percent)) * 1000


@dataclass(frozen=True)
class InferCosts:
    """What was measured, and the setting.

    Attributes:
        setting: in words.
        speeds: of each kind of call.
        difference: the largest of a probability between forms and engines of one network.
    """

    setting: str
    speeds: Sequence[Speed]
    difference: float

    @property
    def agrees(self) -> bool:
        """Whether all forms and engines compute the same; NaN is no agreement."""
        return self.difference <= TOLERANCE

    def find(self, threads: int, batch: int, what: str, engine: str) -> Speed:
        """Return one kind of call."""
        return next(
            each
            for each in self.speeds
            if (each.threads, each.batch, each.what, each.engine) == (threads, batch, what, engine)
        )

    def values(self, name: str) -> list[Any]:
        """Return the values of an attribute of :class:`Speed`, each once, in their order."""
        return list(dict.fromkeys(getattr(each, name) for each in self.speeds))

    @property
    def networks(self) -> list[str]:
        """Names."""
        return [name for name in self.values("what") if name not in (BARE, READ)]

    def to_markdown(self) -> str:
        """A table of the networks for each number of threads, one of the reading, and whether all agree."""
        parts: list[str | Table] = [self.setting]
        for threads in self.values("threads"):
            parts += [f"Threads: {threads}", self._networks(threads)]
        return report(
            *parts,
            f"`Recognizer.read` of the {STUDENT}, PNG images to texts:",
            self._reading(),
            f"Forms of the student and engines {verdict(self.agrees)}: probabilities differ by {self.difference:.1e} "
            f"at most (limit {TOLERANCE:.0e})",
        )

    def _networks(self, threads: int) -> Table:
        batches = self.values("batch")
        head = ["network", "engine"]
        for batch in batches:
            head += [f"batch {batch}: images/s (best)", "p50, p95 of a batch, ms"]
            head += ["CPU ms an image (least)", "student is better by: images/s, CPU"]
        rows: dict[tuple[str, str], list[str]] = {}
        for batch in batches:
            for each in self.speeds:
                if (each.threads, each.batch) == (threads, batch) and each.what not in (BARE, READ):
                    student = self.find(threads, batch, STUDENT, each.engine)
                    row = rows.setdefault((each.what, each.engine), [each.what, each.engine])
                    row += [f"{each.best:.1f}", f"{each.milliseconds(50):.1f}, {each.milliseconds(95):.1f}"]
                    row += [
                        f"{each.cpu:.2f}",
                        f"{student.best / each.best:.2f}, {each.cpu / student.cpu:.2f}",
                    ]
        return head, list(rows.values())

    def _reading(self) -> Table:
        rows = []
        for read in (each for each in self.speeds if each.what == READ):
            bare = self.find(read.threads, read.batch, BARE, read.engine)
            rows.append(
                [str(read.threads), str(read.batch), read.engine, f"{bare.best:.1f}", f"{read.best:.1f}"]
                + [f"{read.best / bare.best:.2f}", f"{read.cpu / bare.cpu:.2f}"]
            )
        head = ["threads", "batch", "engine", "bare engine, images/s (best)", "`Recognizer.read`"]
        return [*head, "of the bare engine", "CPU of the bare engine's"], rows


def measure_infer(
    size: str,
    batch: Sequence[int] = (1, 16),
    threads: Sequence[int] = (1, 2),
    rounds: int = 5,
    images: int = 48,
    peer: str | None = None,
) -> InferCosts:
    """Measure the engines over a distillation's networks.

    Args:
        size: ``"tiny"`` (the quickstart's models) or ``"full"`` (SVTRv2 teacher, RepSVTR student).
        batch: images of each batch.
        threads: of an engine.
        rounds: measured turns after one to warm up; the fastest call counts.
        images: that ``Recognizer.read`` reads in a call.
        peer: folder of a PaddleOCR checkout, whose form of the student is measured as well.

    Raises:
        PPOCRExtError: a process failed.
        HostError: ``peer`` is no checkout.
    """
    if peer is not None:
        require_peer(Path(peer))
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        root = None if peer is None else str(Path(peer).resolve())
        prepared = in_fresh_process(f"{_MODULE}_data:prepare", {"folder": folder, "size": size, "root": root})
        given: dict[str, Any] = {
            "size": size,
            "batches": list(batch),
            "threads": list(threads),
            "rounds": rounds,
        }
        given |= {"folders": prepared["folders"], "images": images}
        found = in_fresh_process(f"{_MODULE}_worker", given)
    speeds = [Speed(**call) for call in found["calls"]]
    setting = f"{prepared['setting']}, {rounds} rounds, {found['versions']}, {circumstances(before)}"
    return InferCosts(setting, speeds, found["difference"])
