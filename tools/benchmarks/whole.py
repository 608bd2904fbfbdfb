"""``benchmark.py all``: all that a run's speed rests on, each kind of work in processes of its own.

What is measured is plain numbers that can be written as JSON; :mod:`benchmarks.whole_rows` makes the table of them, and
:func:`benchmarks.charts.draw_whole` the chart.
"""

from __future__ import annotations

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

from benchmarks import charts, whole_rows
from benchmarks.fresh import in_fresh_process
from benchmarks.labels import measure_labels, write_repeated
from benchmarks.peer import require_peer
from benchmarks.processes import require_shares
from benchmarks.step import BARE_STUDENT, CACHED, COMPILED, PEER, RECOMPUTED
from benchmarks.step_worker import APART
from benchmarks.table import SECTIONS, circumstances, threads
from benchmarks.whole_rows import CACHE, CENTERS, ENGINE, LABELS, Run
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.io.atomic import check_writable, write_text

_LINES = 64  # read correctly, of an evaluation and of centers
_SMALL = 32  # lines that the label files of `data` name again and again
_ROUNDS_OF_MEMORY = 1  # after those to warm up
_ROUNDS = 3  # at most, of all but steps
_TOLERANCE = 1e-5  # of a center, as a share of the largest entry


@dataclass(frozen=True)
class Plan:
    """What is measured, and how.

    Attributes:
        size: ``"tiny"`` or ``"full"``.
        batch: images of a step.
        rounds: measured ones of steps; of other work, three at most.
        threads: of each kind of work; as many processes share a step.
        lines: of the label files for a teacher cache and for centers; the check of labels gets ten times as many too.
        only: of the sections.
        peer: a PaddleOCR checkout.
    """

    size: str = "full"
    batch: int = 16
    rounds: int = 3
    threads: int = 2
    lines: Sequence[int] = (1000, 10_000)
    only: Sequence[str] = SECTIONS
    peer: str | None = None

    @property
    def fewer(self) -> int:
        """Rounds of all but steps."""
        return min(self.rounds, _ROUNDS)


@dataclass(frozen=True)
class WholeCosts:
    """What was measured, by runs: each has sections that no other one has."""

    runs: Sequence[Run]

    @property
    def agrees(self) -> bool:
        """Whether all results are what they must be."""
        return whole_rows.agrees(self.runs)

    def to_markdown(self) -> str:
        """The table."""
        return whole_rows.to_markdown(self.runs)


def measure_whole(*, out: str | None = None, redraw: bool = False, **options: Any) -> WholeCosts:
    """Measure, tell progress on stderr, and write table, chart and JSON.

    Args:
        out: folder for the files. What its JSON has of sections that are not measured now stays.
        redraw: measure nothing; make table and chart of that JSON again.
        options: of :class:`Plan`.

    Raises:
        PPOCRExtError: nothing can be measured, or ``out`` cannot be used; nothing has been measured then.
    """
    if out is None:
        if redraw:
            raise PPOCRExtError(
                "--redraw: --out is missing. Fix: --out DIR of an earlier run.", code="missing_option"
            )
        return WholeCosts([_measure(Plan(**options))])
    file = Path(out) / "performance.json"
    earlier = _read(file) if redraw or file.is_file() else []
    if not charts.has_matplotlib():
        print(
            f"{file.parent}: there will be no chart, since matplotlib is missing. Fix: pip install matplotlib, then "
            "--redraw",
            file=sys.stderr,
        )
    if not redraw:
        check_writable(file)

    def keep(run: Run) -> Sequence[Run]:
        runs = _merged(earlier, run)
        write_text(file, json.dumps({"runs": runs}, indent=1) + "\n")
        return runs

    costs = WholeCosts(earlier if redraw else keep(_measure(Plan(**options), keep)))
    write_text(file.with_suffix(".md"), costs.to_markdown() + "\n")
    if charts.has_matplotlib():
        charts.draw_whole(costs.runs, file.with_suffix(".png"))
    return costs


def _read(file: Path) -> list[Run]:
    """Return the runs of a JSON file.

    Raises:
        PPOCRExtError: there is none, or no table can be made of it.
    """
    try:
        runs: list[Run] = json.loads(file.read_text(encoding="utf-8"))["runs"]
        whole_rows.to_markdown(runs)
    except FileNotFoundError as missing:
        raise PPOCRExtError(
            f"There is no {file}. Fix: --out DIR of an earlier run.", code="missing_file"
        ) from missing
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise PPOCRExtError(
            f"{file}: this is not what the command has written ({type(error).__name__}: {error}). Fix: remove it, and "
            f"measure again.",
            code="broken_file",
        ) from error
    return runs


def _merged(earlier: Sequence[Run], run: Run) -> list[Run]:
    """Return all runs, the earlier ones without what is measured again; one without any section goes."""
    measured = set(SECTIONS) & set(run)
    kept = [{name: value for name, value in each.items() if name not in measured} for each in earlier]
    return [*(each for each in kept if set(SECTIONS) & set(each)), run]


def _measure(plan: Plan, keep: Callable[[Run], object] = lambda _: None) -> Run:
    """Measure the sections of a plan; ``keep`` gets what is measured so far, in case a later one fails."""
    require_shares(plan.batch, plan.threads)
    if plan.peer is not None:
        require_peer(Path(plan.peer))
    before, began, run = os.getloadavg()[0], time.monotonic(), Run(batch=plan.batch)

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s: {what}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        if set(plan.only) != {"data"}:
            say("lines that can be read, a teacher cache, a batch")
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
    return {"arithmetic": in_fresh_process("benchmarks.limits", {"folder": folder})}


def _peer(plan: Plan) -> str | None:
    return None if plan.peer is None else str(Path(plan.peer).resolve())


def _step(plan: Plan, folder: str) -> dict[str, Any]:
    kinds = [kind for kind in whole_rows.KINDS if plan.threads > 1 or not kind.endswith(APART)]
    work = {"folder": folder, "kinds": kinds, "rounds": plan.rounds, "threads": plan.threads}
    return dict(in_fresh_process("benchmarks.step_worker", {**work, "root": _peer(plan)})["seconds"])


def _memory(plan: Plan, folder: str) -> dict[str, int]:
    """Peak bytes of processes that do two steps of a kind."""
    found = {}
    in_fresh_process(  # makes the graph, if it is new
        "benchmarks.step_worker",
        {"folder": folder, "kinds": [COMPILED], "rounds": 0, "threads": plan.threads},
    )
    ours = [BARE_STUDENT, CACHED, COMPILED, CACHED + RECOMPUTED, COMPILED + RECOMPUTED]
    for kind in ours + [PEER] * (plan.peer is not None):
        work = {"folder": folder, "kinds": [kind], "rounds": _ROUNDS_OF_MEMORY, "threads": plan.threads}
        found[kind] = in_fresh_process("benchmarks.step_worker", {**work, "root": _peer(plan)})["peak"]
    return found


def _eval(plan: Plan, folder: str) -> dict[str, Any]:
    """Images a second, and whether both find the same accuracy."""
    ours = in_fresh_process(
        "benchmarks.export_center_worker:evaluate", {"folder": folder, "rounds": plan.fewer}
    )
    found = {COMPILED: ours["images_per_second"], "agrees": True}
    if plan.peer is not None:
        peers = _peer_passes(plan, folder, "evaluation")
        found[PEER] = peers["images_per_second"]
        found["agrees"] = abs(ours["acc"] - peers["acc"]) < 1e-4
    return found


def _center(plan: Plan, folder: str) -> dict[str, Any]:
    """Images a second, and whether both find the same centers."""
    kinds = {ENGINE: "engine", COMPILED: "centers"}
    passes = [*kinds.values()] * (plan.fewer + 1)
    work = {"folder": folder, "passes": passes}
    speeds = in_fresh_process("benchmarks.export_center_worker", work)["images_per_second"]
    found: dict[str, Any] = {
        name: speeds[place + len(kinds) :: len(kinds)] for place, name in enumerate(kinds)
    }
    found["agrees"] = True
    if plan.peer is not None:
        found[PEER] = _peer_passes(plan, folder, "centers")["images_per_second"]
        error = difference(Path(folder) / "ours.npz", Path(folder) / "peer.npz")
        found["agrees"] = error <= _TOLERANCE
    return found


def _peer_passes(plan: Plan, folder: str, what: str) -> dict[str, Any]:
    work = {"folder": folder, "root": _peer(plan), "rounds": plan.fewer, "what": what}
    return in_fresh_process("benchmarks.export_center_peer", work)


def difference(ours: Path, peers: Path) -> float:
    """Return the largest difference of an entry of two files' centers, as a share of the second's largest entry.

    It is infinite where their classes differ.
    """
    with np.load(ours) as one, np.load(peers) as other:
        if not np.array_equal(one["class_ids"], other["class_ids"]):
            return float("inf")
        return float(np.abs(one["centers"] - other["centers"]).max() / np.abs(other["centers"]).max())


def _data(plan: Plan, _: str) -> dict[str, Any]:
    """Seconds and peak memory by lines; at the quickstart's size, whatever the plan's is."""
    labels = measure_labels([*plan.lines, 10 * max(plan.lines)], plan.fewer)
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
                once = in_fresh_process("benchmarks.step_data:measure_growth", work)
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
