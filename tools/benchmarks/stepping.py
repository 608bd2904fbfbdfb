"""Distillation steps on the batch of a run, on the CPU: in this process, or in several that share the batch."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any
from unittest.mock import patch

import paddle
import paddle.distributed as dist

from benchmarks.fresh import how_it_ended
from benchmarks.memory import peak_memory
from benchmarks.step import PEER, Step, our_steps, peer_step, take_turns
from benchmarks.step_data import CACHE, batch_of_run, config_of
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.run.context import tune_cpu

APART = ", a process for each thread"  # added to the name of a kind of step
Group = dict[Connection, Any]  # the processes that do a step together
_LAST_STEP = 60.0  # seconds for a process to end


def measure(
    folder: str, kinds: Sequence[str], rounds: int, threads: int, root: str | None = None
) -> dict[str, Any]:
    """Take steps in turns.

    Args:
        folder: as :func:`benchmarks.step_data.prepare` leaves it.
        kinds: names of :mod:`benchmarks.step`; with :data:`APART`, in processes that share the batch. A kind that this
            machine cannot do (a package or the checkout is missing) is left out.
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
    with ExitStack() as stack:
        if apart:
            together = stack.enter_context(stepping_processes(threads, _steps_on_a_share, folder))
            steps |= {kind: partial(together, name) for kind, name in apart.items()}
        seconds = take_turns({kind: steps[kind] for kind in kinds if kind in steps}, rounds)
    return {"seconds": seconds, "peak": peak_memory()}


def require_shares(batch: int, processes: int) -> None:
    """Raise an error if the batch is not a multiple of the number of processes."""
    if batch % processes:
        raise PPOCRExtError(
            f"--batch {batch} cannot be shared by {processes} processes. Fix: give a multiple of {processes}.",
            code="bad_value",
        )


def _steps_on_a_share(folder: str) -> dict[str, Step]:
    """Return the steps, by kind, on the samples of the batch that belong to this process."""
    rank, count = dist.get_rank(), dist.get_world_size()
    share = [each[rank::count] for each in batch_of_run(Path(folder))]
    return our_steps(config_of(Path(folder)), share, Path(folder) / CACHE)


@contextmanager
def stepping_processes(
    count: int, build: Callable[..., Mapping[str, Step]], *options: object
) -> Iterator[Callable[[str], None]]:
    """Start ``count`` processes with one thread that train together; yield a function that does a step of a kind.

    ``build(*options)``, a function of a module, makes the steps by kind in each process.
    """
    group = _start(count, build, options)

    def step(kind: str) -> None:
        for connection in group:
            connection.send(kind)
        _wait(group)

    try:
        _wait(group)
        yield step
    finally:
        for connection in group:
            connection.close()  # which ends the process
        for process in group.values():
            process.join(_LAST_STEP)
            process.terminate()  # it may wait for another process


def _start(count: int, build: Callable[..., Mapping[str, Step]], options: tuple[object, ...]) -> Group:
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"127.0.0.1:{free.getsockname()[1]}"
    group: Group = {}
    for rank in range(count):
        ours, theirs = context.Pipe()
        variables = {
            "OMP_NUM_THREADS": "1",
            "GLOG_minloglevel": "1",
            "PADDLE_MASTER": master,
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(count),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(f"127.0.0.1:{1 + each}" for each in range(count)),
            "PADDLE_CURRENT_ENDPOINT": f"127.0.0.1:{1 + rank}",
            "PADDLE_DISTRI_BACKEND": "gloo",
        }
        # Paddle reads them on import, before the target function begins.
        with patch.dict(os.environ, variables):
            process = context.Process(target=_step_when_told, args=(theirs, build, options), daemon=True)
            process.start()
        theirs.close()
        group[ours] = process
    return group


def _wait(group: Group) -> None:
    """Wait until each process has done its step; the first failure ends the other processes."""
    waiting = set(group)
    while waiting:
        ready = wait(list(waiting))
        for connection in [each for each in waiting if each in ready]:
            try:
                reason = connection.recv()
            except (EOFError, ConnectionResetError):
                group[connection].join(_LAST_STEP)
                reason = f"it {how_it_ended(group[connection].exitcode)}"
            if reason:
                for process in group.values():
                    process.terminate()
                raise PPOCRExtError(
                    f"A process that takes steps has failed: {reason}.", code="process_failed"
                )
            waiting.remove(connection)


def _step_when_told(
    connection: Connection, build: Callable[..., Mapping[str, Step]], options: tuple[object, ...]
) -> None:
    """Do a step of each kind that comes from the connection, until it is closed."""
    try:
        paddle.set_device("cpu")
        tune_cpu()
        dist.init_parallel_env()
        steps = build(*options)
        connection.send("")
        while kind := _next_kind(connection):
            steps[kind]()
            connection.send("")
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        raise


def _next_kind(connection: Connection) -> str | None:
    try:
        return str(connection.recv())
    except EOFError:
        return None
