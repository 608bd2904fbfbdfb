"""Distillation steps on a batch of a run, on the CPU, in a process of their own; see :mod:`benchmarks.step`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paddle

from benchmarks.fresh import answer
from benchmarks.memory import peak_memory
from benchmarks.processes import stepping_processes
from benchmarks.step import PEER, Step, our_steps, peer_step, take_turns
from benchmarks.step_data import CACHE, batch_of_run, config_of, step_on_a_share
from ppocr_ext.run.device import tune_cpu

APART = ", a process for each thread"  # added to the name of a kind of step


def measure(
    folder: str, kinds: Sequence[str], rounds: int, threads: int, root: str | None = None
) -> dict[str, Any]:
    """Take steps in turns.

    Args:
        folder: as :func:`benchmarks.step_data.prepare` leaves it.
        kinds: names of :mod:`benchmarks.step`; with :data:`APART`, in processes that share the batch.
        rounds: measured ones, after one to warm up.
        threads: of a step.
        root: the checkout for the kind ``PEER``.

    Returns:
        ``seconds`` of each round by kind, and ``peak`` memory of this process in bytes.
    """
    paddle.set_device("cpu")
    tune_cpu()
    place, steps = Path(folder), dict[str, Step]()
    config, batch = config_of(place), batch_of_run(place)
    with ExitStack() as processes:
        for kind in [each for each in kinds if each.endswith(APART)]:
            name = kind.removesuffix(APART)
            steps[kind] = processes.enter_context(
                stepping_processes(threads, 1, step_on_a_share, folder, name)
            )
        if any(kind not in (PEER, *steps) for kind in kinds):
            steps |= our_steps(config, batch, place / CACHE)
        if PEER in kinds and root is not None:
            steps[PEER] = peer_step(config, batch, Path(root))
        seconds = take_turns({kind: steps[kind] for kind in kinds}, rounds)
    return {"seconds": seconds, "peak": peak_memory()}


if __name__ == "__main__":
    answer(measure)
