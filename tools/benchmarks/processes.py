"""One process with a thread for each core against one process for each core: seconds of a distillation step.

Both take steps of the same number of samples, in turns; who waits needs no core.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any
from unittest.mock import patch

import paddle
import paddle.distributed as dist

from benchmarks.fresh import how_it_ended
from benchmarks.step import COMPILED, Step, our_steps, setting, take_turns
from benchmarks.table import Turns, processor
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.run.device import tune_cpu

Group = dict[Connection, Any]  # the processes that do a step together
_LAST_STEP = 60.0  # seconds that a process may need to its end


def measure_processes(
    size: str,
    batch: int,
    image: tuple[int, int] | None = None,
    rounds: int = 5,
    processes: int = 2,
    peer: str | None = None,
) -> Turns:
    """Measure a step of one process with ``processes`` threads, and of as many processes with one thread each.

    Args:
        size, image, rounds: as in :func:`benchmarks.step.measure_step`.
        batch: images of a step; each of the processes takes its share.
        processes: at least 2.
        peer: refused.

    Raises:
        PPOCRExtError: the batch cannot be shared, or a process has failed.
    """
    if peer is not None:
        raise PPOCRExtError(
            "A checkout is not measured in processes. Fix: remove --peer or --processes.",
            code="conflicting_options",
        )
    require_shares(batch, processes)
    share = (size, batch // processes, image)
    base = f"1 process, {processes} threads"
    with (
        stepping_processes(1, processes, _random_steps, size, batch, image) as together,
        stepping_processes(processes, 1, _random_steps, *share) as apart,
    ):
        kinds = {
            base: partial(together, COMPILED),
            f"{processes} processes, 1 thread": partial(apart, COMPILED),
        }
        seconds = take_turns(kinds, rounds)
    described = setting(size, batch, image)[2]
    described += f" in all, Paddle {paddle.__version__} on cpu, {processor()}, {rounds} rounds"
    return Turns(described, seconds, "step of", base)


def require_shares(batch: int, processes: int) -> None:
    """Refuse a batch that the processes cannot share.

    Raises:
        PPOCRExtError: it is no multiple of their number.
    """
    if batch % processes:
        raise PPOCRExtError(
            f"--batch {batch} cannot be shared by {processes} processes. Fix: a multiple of {processes}.",
            code="bad_value",
        )


def _random_steps(size: str, batch: int, image: tuple[int, int] | None) -> dict[str, Step]:
    return our_steps(*setting(size, batch, image)[:2])


@contextmanager
def stepping_processes(
    count: int, threads: int, build: Callable[..., Mapping[str, Step]], *options: object
) -> Iterator[Callable[[str], None]]:
    """Start processes that train together; inside this context, call what is yielded to let them do a step of a kind.

    Args:
        count: of processes.
        threads: of each.
        build: makes the steps by kind in each of them; a function of a module, with ``options``.

    Raises:
        PPOCRExtError: a process has failed.
    """
    group = _start(count, threads, build, options)

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
            process.terminate()  # one that waits for another one


def _start(
    count: int, threads: int, build: Callable[..., Mapping[str, Step]], options: tuple[object, ...]
) -> Group:
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"127.0.0.1:{free.getsockname()[1]}"
    group: Group = {}
    for rank in range(count):
        ours, theirs = context.Pipe()
        variables = {"OMP_NUM_THREADS": str(threads), "GLOG_minloglevel": "1"}
        if count > 1:
            variables |= {
                "PADDLE_MASTER": master,
                "PADDLE_TRAINER_ID": str(rank),
                "PADDLE_TRAINERS_NUM": str(count),
                "PADDLE_TRAINER_ENDPOINTS": ",".join(f"127.0.0.1:{1 + each}" for each in range(count)),
                "PADDLE_CURRENT_ENDPOINT": f"127.0.0.1:{1 + rank}",
                "PADDLE_DISTRI_BACKEND": "gloo",
            }
        with patch.dict(
            os.environ, variables
        ):  # a process gets those of its start, and Paddle reads them on import
            process = context.Process(target=_step_when_told, args=(theirs, build, options), daemon=True)
            process.start()
        theirs.close()
        group[ours] = process
    return group


def _wait(group: Group) -> None:
    """Wait until each process has done its step; the first one that fails ends the others.

    Raises:
        PPOCRExtError: a process has failed.
    """
    left = set(group)
    while left:
        ready = wait(list(left))
        for connection in [each for each in left if each in ready]:
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
            left.remove(connection)


def _step_when_told(
    connection: Connection, build: Callable[..., Mapping[str, Step]], options: tuple[object, ...]
) -> None:
    """Do a step of each kind that is asked for, until the connection is closed."""
    try:
        paddle.set_device("cpu")
        tune_cpu()
        if dist.get_world_size() > 1:
            dist.init_parallel_env()
        steps = build(*options)
        connection.send("")
        while kind := _asked(connection):
            steps[kind]()
            connection.send("")
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        raise


def _asked(connection: Connection) -> str | None:
    try:
        return str(connection.recv())
    except EOFError:
        return None
