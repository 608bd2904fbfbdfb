"""``benchmark.py all``: step, evaluation, centers, memory and cost by the number of lines, each in its own processes.

The figures are plain numbers that JSON can hold. :mod:`benchmarks.whole_rows` makes the table, and
:func:`benchmarks.charts.draw_whole` the chart.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks import whole_rows
from benchmarks.charts import draw_whole
from benchmarks.fresh import in_fresh_process
from benchmarks.labels import measure_labels, write_repeated
from benchmarks.peer import require_peer
from benchmarks.step import BARE_STUDENT, CACHED, COMPILED, PEER, RECOMPUTED
from benchmarks.stepping import APART, require_shares
from benchmarks.table import SECTIONS, circumstances, threads
from benchmarks.whole_rows import CACHE, CENTERS, ENGINE, LABELS, Run
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.io.atomic import check_writable, write_text

_LINES = 64  # of an evaluation and of centers; the network reads them correctly
_SMALL = 32  # different lines in the label files of `data`
_ROUNDS_OF_MEMORY = 1  # after those to warm up
_ROUNDS = 3  # at most, except for steps
_TOLERANCE = 1e-5  # of a center, as a share of the largest entry


@dataclass(frozen=True)
class Plan:
    """What is measured, and how."""

    size: str = "full"  # key of ``SIZES``
    batch: int = 16  # images of a step
    rounds: int = 3  # measured ones of steps; at most three of other work
    threads: int = 2  # of each kind of work; as many processes share a step
    lines: Sequence[int] = (1000, 10_000)  # of label files; the label check also gets ten times as many
    only: Sequence[str] = SECTIONS
    peer: str | None = None  # a PaddleOCR checkout

    @property
    def fewer(self) -> int:
        """Rounds of work other than steps."""
        return min(self.rounds, _ROUNDS)


@dataclass(frozen=True)
class WholeCosts:
    """What was measured, by runs; no two runs have the same section."""

    runs: Sequence[Run]

    @property
    def agrees(self) -> bool:
        """True if all results are as they must be."""
        return whole_rows.agrees(self.runs)

    def to_markdown(self) -> str:
        """Return the table."""
        return whole_rows.to_markdown(self.runs)


def measure_whole(*, out: str | None = None, **options: Any) -> WholeCosts:
    """Measure the plan of ``options``, print progress to stderr, and write table, chart and JSON to ``out``.

    Sections in the JSON that are not measured now stay.
    """
    plan = Plan(**options)
    if out is None:
        return WholeCosts([_measure(plan)])
    file = Path(out) / "performance.json"
    earlier = _read(file) if file.is_file() else []
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    if not has_matplotlib:
        print("There will be no chart. Fix: pip install matplotlib", file=sys.stderr)
    check_writable(file)

    def keep(run: Run) -> Sequence[Run]:
        runs = _merged(earlier, run)
        write_text(file, json.dumps({"runs": runs}, indent=1) + "\n")
        return runs

    costs = WholeCosts(keep(_measure(plan, keep)))
    write_text(file.with_suffix(".md"), costs.to_markdown() + "\n")
    if has_matplotlib:
        draw_whole(costs.runs, file.with_suffix(".png"))
    return costs


def _read(file: Path) -> list[Run]:
    try:
        runs: list[Run] = json.loads(file.read_text(encoding="utf-8"))["runs"]
        whole_rows.to_markdown(runs)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PPOCRExtError(
            f"{file}: the command did not write this ({type(error).__name__}: {error}). Fix: remove the file.",
            code="broken_file",
        ) from error
    return runs


def _merged(earlier: Sequence[Run], run: Run) -> list[Run]:
    """Return all runs; sections measured again leave the earlier runs, and a run without sections goes."""
    measured = set(SECTIONS) & set(run)
    kept = [{name: value for name, value in each.items() if name not in measured} for each in earlier]
    return [*(each for each in kept if set(SECTIONS) & set(each)), run]


def _measure(plan: Plan, keep: Callable[[Run], object] = lambda _: None) -> Run:
    """Measure the sections of a plan; ``keep`` gets the run after each section, in case a later one fails."""
    require_shares(plan.batch, plan.threads)
    if plan.peer is not None:
        require_peer(Path(plan.peer))
    before, began, run = os.getloadavg()[0], time.monotonic(), Run(batch=plan.batch)

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        if set(plan.only) != {"data"}:
            say("lines, a teacher cache, a batch")
            run |= _prepare(folder, plan.size, max(_LINES, 2 * plan.batch), plan.batch)
        for name in dict.fromkeys(plan.only):
            say(name)
            run[name] = _SECTIONS[name](plan, folder)
            run["setting"] = _setting(plan, before)
            keep(run)
    say("done")
    return run


def _setting(plan: Plan, before: float) -> str:
    size = "" if set(plan.only) == {"data"} else f"{plan.size}: batch {plan.batch}, "
    rounds = f"{plan.rounds} rounds" + f" of steps, {plan.fewer} of other work" * (plan.rounds > plan.fewer)
    return f"{size}{threads()}, {rounds}, Paddle {paddle.__version__} on cpu, {circumstances(before)}"


def _prepare(folder: str, size: str, lines: int, batch: int) -> dict[str, Any]:
    work = {"folder": folder, "size": size, "lines": lines, "batch": batch}
    in_fresh_process("benchmarks.export_center_data:prepare", work)
    in_fresh_process("benchmarks.step_data:prepare", {"folder": folder, "batch": batch})
    return {"arithmetic": in_fresh_process("benchmarks.limits:measure", {"folder": folder})}


def _peer(plan: Plan) -> str | None:
    return None if plan.peer is None else str(Path(plan.peer).resolve())


def _take_steps(plan: Plan, folder: str, kinds: Sequence[str], rounds: int) -> dict[str, Any]:
    work = {"folder": folder, "kinds": kinds, "rounds": rounds, "threads": plan.threads, "root": _peer(plan)}
    return in_fresh_process("benchmarks.stepping:measure", work)


def _step(plan: Plan, folder: str) -> dict[str, Any]:
    kinds = [kind for kind in whole_rows.KINDS if plan.threads > 1 or not kind.endswith(APART)]
    return dict(_take_steps(plan, folder, kinds, plan.rounds)["seconds"])


def _memory(plan: Plan, folder: str) -> dict[str, int]:
    """Return the peak bytes of processes that do steps of one kind."""
    _take_steps(plan, folder, [COMPILED], 0)  # makes the graph, if there is none
    kinds = [BARE_STUDENT, CACHED, COMPILED, CACHED + RECOMPUTED, COMPILED + RECOMPUTED]
    kinds += [PEER] * (plan.peer is not None)
    return {kind: _take_steps(plan, folder, [kind], _ROUNDS_OF_MEMORY)["peak"] for kind in kinds}


def _eval(plan: Plan, folder: str) -> dict[str, Any]:
    """Return images a second, and whether both accuracies agree."""
    ours = in_fresh_process("benchmarks.passes:evaluate", {"folder": folder, "rounds": plan.fewer})
    section = {COMPILED: ours["images_per_second"], "agrees": True}
    if plan.peer is not None:
        peer = _peer_passes(plan, folder, "evaluation")
        section[PEER] = peer["images_per_second"]
        section["agrees"] = abs(ours["acc"] - peer["acc"]) < 1e-4
    return section


def _center(plan: Plan, folder: str) -> dict[str, Any]:
    """Return images a second, and whether both centers agree."""
    work = {"folder": folder, "passes": ["engine", "centers"] * (plan.fewer + 1)}
    speeds = in_fresh_process("benchmarks.passes:make_centers", work)["images_per_second"]
    section: dict[str, Any] = {ENGINE: speeds[2::2], COMPILED: speeds[3::2], "agrees": True}
    if plan.peer is not None:
        section[PEER] = _peer_passes(plan, folder, "centers")["images_per_second"]
        error = difference(Path(folder) / "ours.npz", Path(folder) / "peer.npz")
        section["agrees"] = error <= _TOLERANCE
    return section


def _peer_passes(plan: Plan, folder: str, what: str) -> dict[str, Any]:
    work = {"folder": folder, "root": _peer(plan), "rounds": plan.fewer, "what": what}
    return in_fresh_process("benchmarks.passes:measure_peer", work)


def difference(ours: Path, peers: Path) -> float:
    """Return the largest difference of two files' centers, as a share of the largest entry of ``peers``.

    It is infinite if their classes differ.
    """
    with np.load(ours) as one, np.load(peers) as other:
        if not np.array_equal(one["class_ids"], other["class_ids"]):
            return float("inf")
        return float(np.abs(one["centers"] - other["centers"]).max() / np.abs(other["centers"]).max())


def _data(plan: Plan, _: str) -> dict[str, Any]:
    """Return seconds and peak memory by lines, with the tiny networks."""
    labels = measure_labels([*plan.lines, 10 * max(plan.lines)], plan.fewer)
    section: dict[str, Any] = {"agrees": labels.agrees}
    section[LABELS] = {
        "lines": [each.lines for each in labels.costs],
        "seconds": [each.cpu_seconds for each in labels.costs],
        "peak": [each.peak for each in labels.costs],
        "limit": labels.costs[-1].lines / labels.costs[-1].bare_seconds,
    }
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        section |= _prepare(folder, "tiny", _SMALL, _SMALL)
        samples = Path(folder, "lines.txt").read_bytes().splitlines(keepends=True)
        for name, what in ((CACHE, "cache"), (CENTERS, "centers")):
            section[name] = {"lines": list(plan.lines), "seconds": [], "peak": []}
            for count in plan.lines:
                file = Path(folder) / f"{count}.txt"
                write_repeated(file, samples, count)
                work = {"what": what, "folder": folder, "lines": str(file)}
                growth = in_fresh_process("benchmarks.step_data:measure_growth", work)
                section[name]["seconds"].append(growth["seconds"])
                section[name]["peak"].append(growth["peak"])
    return section


_SECTIONS: dict[str, Callable[[Plan, str], dict[str, Any]]] = {
    "step": _step,
    "eval": _eval,
    "center": _center,
    "memory": _memory,
    "data": _data,
}
