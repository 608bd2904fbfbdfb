"""All that a run's speed rests on, measured at once: each kind of work in processes of its own, at full size.

What is measured is plain numbers that can be written as JSON; :mod:`benchmarks.whole_rows` makes the table of them, and
:mod:`benchmarks.whole_chart` the chart.
"""

from __future__ import annotations

import datetime
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle

from benchmarks import export_center
from benchmarks.fresh import in_fresh_process
from benchmarks.labels import measure_labels, write_repeated
from benchmarks.peer import require_peer
from benchmarks.processes import require_shares
from benchmarks.step import BARE_STUDENT, BFLOAT16, CACHED, COMPILED, NETWORK, PEER
from benchmarks.step_worker import APART
from benchmarks.table import processor, threads
from benchmarks.whole_command import SECTIONS
from ppocr_ext.engine.predictor import has_bfloat16

CACHE, CENTERS, LABELS = "teacher cache", "centers", "label check"
_LINES = 64  # read correctly, of an evaluation and of centers
_SMALL = 32  # lines that the label files of `data` name again and again
_ROUNDS_OF_MEMORY = 1  # after one to warm up


@dataclass(frozen=True)
class Plan:
    """What is measured, and how.

    Attributes:
        size: ``"tiny"`` or ``"full"``.
        batch: images of a step.
        rounds: measured ones.
        threads: of each kind of work; as many processes share a step.
        lines: of the label files for a teacher cache and for centers; the check of labels gets ten times as many too.
        only: of :data:`SECTIONS`.
        peer: a PaddleOCR checkout.
    """

    size: str = "full"
    batch: int = 16
    rounds: int = 3
    threads: int = 2
    lines: Sequence[int] = (1000, 10_000)
    only: Sequence[str] = SECTIONS
    peer: Path | None = None


def measure_all(
    plan: Plan, say: Callable[[str], None], keep: Callable[[dict[str, Any]], None] = lambda _: None
) -> dict[str, Any]:
    """Measure the sections of a plan.

    Args:
        plan: what is measured.
        say: told what begins.
        keep: gets what is measured so far after each section, in case a later one fails.

    Returns:
        ``setting`` in words, ``batch``, ``arithmetic`` of one image (:mod:`benchmarks.arithmetic_worker`), and a key
        for each section.

    Raises:
        PPOCRExtError: a process failed, or the batch cannot be shared.
        HostError: the peer is no checkout.
    """
    require_shares(plan.batch, plan.threads)
    if plan.peer is not None:
        require_peer(plan.peer)
    before, found = os.getloadavg()[0], dict[str, Any](batch=plan.batch)
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        if set(plan.only) != {"data"}:
            say("lines that can be read, a teacher cache, a batch")
            found |= _prepare(folder, plan.size, max(_LINES, 2 * plan.batch), plan.batch)
        for name in plan.only:
            say(name)
            found[name] = _SECTIONS[name](plan, folder)
            found["setting"] = _setting(plan, before)
            keep(found)
    return found


def _setting(plan: Plan, before: float) -> str:
    batch = "" if plan.only == ["data"] else f" batch {plan.batch},"
    return (
        f"{plan.size}:{batch} {threads()}, {plan.rounds} rounds, Paddle {paddle.__version__} on cpu, {processor()}, "
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, load of the machine {before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after"
    )


def _prepare(folder: str, size: str, lines: int, batch: int) -> dict[str, Any]:
    work = {"folder": folder, "size": size, "lines": lines, "batch": batch}
    in_fresh_process("benchmarks.export_center_data", work)
    in_fresh_process("benchmarks.step_data", {"folder": folder, "batch": batch})
    return {"arithmetic": in_fresh_process("benchmarks.arithmetic_worker", {"folder": folder})}


def _peer(plan: Plan) -> str | None:
    return None if plan.peer is None else str(plan.peer.resolve())


def _step(plan: Plan, folder: str) -> dict[str, Any]:
    kinds = [BARE_STUDENT, CACHED, COMPILED, NETWORK] + [BFLOAT16] * has_bfloat16()
    kinds += [kind + APART for kind in (CACHED, COMPILED)] * (plan.threads > 1)
    kinds += [PEER] * (plan.peer is not None)
    work = {"folder": folder, "kinds": kinds, "rounds": plan.rounds, "threads": plan.threads}
    return dict(in_fresh_process("benchmarks.step_worker", {**work, "root": _peer(plan)})["seconds"])


def _memory(plan: Plan, folder: str) -> dict[str, int]:
    """Peak bytes of processes that do two steps of a kind."""
    found = {}
    in_fresh_process(  # makes the graph, if it is new
        "benchmarks.step_worker",
        {"folder": folder, "kinds": [COMPILED], "rounds": 0, "threads": plan.threads},
    )
    for kind in [BARE_STUDENT, CACHED, COMPILED] + [PEER] * (plan.peer is not None):
        work = {"folder": folder, "kinds": [kind], "rounds": _ROUNDS_OF_MEMORY, "threads": plan.threads}
        found[kind] = in_fresh_process("benchmarks.step_worker", {**work, "root": _peer(plan)})["peak"]
    return found


def _eval(plan: Plan, folder: str) -> dict[str, Any]:
    """Images a second, and whether both find the same accuracy."""
    ours = in_fresh_process("benchmarks.evaluation_worker", {"folder": folder, "rounds": plan.rounds})
    found = {COMPILED: ours["images_per_second"], "agrees": True}
    if plan.peer is not None:
        peers = _peer_passes(plan, folder, "evaluation")
        found[PEER] = peers["images_per_second"]
        found["agrees"] = abs(ours["acc"] - peers["acc"]) < 1e-4
    return found


def _center(plan: Plan, folder: str) -> dict[str, Any]:
    """Images a second, and whether both find the same centers."""
    kinds = {export_center.ENGINE: "engine", COMPILED: "centers"}
    passes = [*kinds.values()] * (plan.rounds + 1)
    work = {"folder": folder, "passes": passes, "frames": "argmax"}
    speeds = in_fresh_process("benchmarks.export_center_worker", work)["images_per_second"]
    found: dict[str, Any] = {
        name: speeds[place + len(kinds) :: len(kinds)] for place, name in enumerate(kinds)
    }
    found["agrees"] = True
    if plan.peer is not None:
        found[PEER] = _peer_passes(plan, folder, "centers")["images_per_second"]
        error = export_center.difference(Path(folder) / "ours.npz", Path(folder) / "peer.npz")
        found["agrees"] = error <= export_center.TOLERANCE
    return found


def _peer_passes(plan: Plan, folder: str, what: str) -> dict[str, Any]:
    work = {"folder": folder, "root": _peer(plan), "distillation": True, "rounds": plan.rounds, "what": what}
    return in_fresh_process("benchmarks.export_center_peer", work)


def _data(plan: Plan, _: str) -> dict[str, Any]:
    """Seconds and peak memory by lines; at the quickstart's size, whatever the plan's is."""
    labels = measure_labels([*plan.lines, 10 * max(plan.lines)], plan.rounds)
    found: dict[str, Any] = {"agrees": labels.agrees}
    found[LABELS] = {
        "lines": [each.lines for each in labels.costs],
        "seconds": [each.cpu_seconds for each in labels.costs],
        "peak": [each.peak for each in labels.costs],
        "limit": labels.costs[-1].lines / labels.costs[-1].bare_seconds,
    }
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        found |= _prepare(folder, "tiny", _SMALL, _SMALL)
        drawn = Path(folder, "lines.txt").read_bytes().splitlines(keepends=True)
        for name, what in ((CACHE, "cache"), (CENTERS, "centers")):
            found[name] = {"lines": list(plan.lines), "seconds": [], "peak": []}
            for count in plan.lines:
                file = Path(folder) / f"{count}.txt"
                write_repeated(file, drawn, count)
                work = {"what": what, "folder": folder, "lines": str(file)}
                once = in_fresh_process("benchmarks.growth_worker", work)
                found[name]["seconds"].append(once["seconds"])
                found[name]["peak"].append(once["peak"])
    return found


_SECTIONS: dict[str, Callable[[Plan, str], dict[str, Any]]] = {
    "step": _step,
    "eval": _eval,
    "center": _center,
    "memory": _memory,
    "data": _data,
}
