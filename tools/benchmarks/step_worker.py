"""Distillation steps on a batch of a run, on the CPU, in a process of their own; see :mod:`benchmarks.step`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import paddle

from benchmarks.memory import peak_memory
from benchmarks.processes import stepping_processes
from benchmarks.step import PEER, Step, our_steps, peer_step, take_turns
from benchmarks.step_data import CACHE, batch_of_run, config_of, steps_on_a_share
from ppocr_ext.run.device import tune_cpu

APART = ", a process for each thread"  # added to the name of a kind of step


def measure(
    folder: str, kinds: Sequence[str], rounds: int, threads: int, root: str | None = None
) -> dict[str, Any]:
    """Take steps in turns.

    Args:
        folder: as :func:`benchmarks.step_data.prepare` leaves it.
        kinds: names of :mod:`benchmarks.step`; with :data:`APART`, in processes that share the batch. What cannot be
            done here (its package or the checkout is missing) is left out.
        rounds: measured ones.
        threads: of a step.
        root: the checkout for the kind ``PEER``.

    Returns:
        ``seconds`` of each round by kind, and ``peak`` memory of this process in bytes.
    """
    paddle.set_device("cpu")
    tune_cpu()
    place, steps = Path(folder), dict[str, Step]()
    config, batch = config_of(place), batch_of_run(place)
    if any(kind != PEER for kind in kinds):
        steps |= our_steps(config, batch, place / CACHE)
    if PEER in kinds and root is not None:
        steps[PEER] = peer_step(config, batch, Path(root))
    apart = {kind: name for kind in kinds if (name := kind.removesuffix(APART)) != kind and name in steps}
    with ExitStack() as opened:
        if apart:
            together = opened.enter_context(stepping_processes(threads, 1, steps_on_a_share, folder))
            steps |= {kind: partial(together, name) for kind, name in apart.items()}
        seconds = take_turns({kind: steps[kind] for kind in kinds if kind in steps}, rounds)
    return {"seconds": seconds, "peak": peak_memory()}
