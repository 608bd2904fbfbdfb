"""One process with a thread for each core against one process for each core: seconds of a distillation step.

Both take steps of the same number of samples, in turns; who waits needs no core.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import paddle
import paddle.distributed as dist

from benchmarks.step import COMPILED, Step, our_steps, setting, take_turns
from benchmarks.table import Turns, processor
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.run.device import tune_cpu

Group = list[tuple[Any, Connection]]  # the processes that do a step together
_LAST_STEP = 60.0  # seconds that a process may need to its end


def measure_processes(
    size: str, batch_size: int, image: tuple[int, int] | None = None, rounds: int = 5, processes: int = 2
) -> Turns:
    """Measure a step of one process with ``processes`` threads, and of as many processes with one thread each.

    Args:
        size, image, rounds: as in :func:`benchmarks.step.measure_step`.
        batch_size: images of a step; each of the processes takes its share.
        processes: at least 2.

    Raises:
        PPOCRExtError: the batch cannot be shared, or a process has failed.
    """
    require_shares(batch_size, processes)
    share = (size, batch_size // processes, image)
    with (
        stepping_processes(1, processes, _random_step, size, batch_size, image) as together,
        stepping_processes(processes, 1, _random_step, *share) as apart,
    ):
        kinds = {f"1 process, {processes} threads": together, f"{processes} processes, 1 thread": apart}
        seconds = take_turns(kinds, rounds)
    described = setting(size, batch_size, image)[2]
    described += f" in all, Paddle {paddle.__version__} on cpu, {processor()}, {rounds} rounds"
    return Turns(described, seconds)


def require_shares(batch_size: int, processes: int) -> None:
    """Refuse a batch that the processes cannot share.

    Raises:
        PPOCRExtError: it is no multiple of their number.
    """
    if batch_size % processes:
        raise PPOCRExtError(
            f"--batch {batch_size} cannot be shared by {processes} processes. Fix: a multiple of {processes}.",
            code="bad_value",
        )


def _random_step(size: str, batch_size: int, image: tuple[int, int] | None) -> Step:
    return our_steps(*setting(size, batch_size, image)[:2])[COMPILED]


@contextmanager
def stepping_processes(
    count: int, threads: int, build: Callable[..., Step], *options: object
) -> Iterator[Step]:
    """Start processes that train together; inside this context, what is yielded makes all of them do a step.

    Args:
        count: of processes.
        threads: of each.
        build: makes the step in each of them; a function of a module, with ``options``.

    Raises:
        PPOCRExtError: a process has failed.
    """
    group = _start(count, threads, build, options)

    def step() -> None:
        for _, connection in group:
            connection.send(True)
        _wait(group)

    try:
        _wait(group)
        yield step
    finally:
        for _, connection in group:
            connection.close()  # which ends the process
        for process, _ in group:
            process.join(_LAST_STEP)


def _start(count: int, threads: int, build: Callable[..., Step], options: tuple[object, ...]) -> Group:
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"127.0.0.1:{free.getsockname()[1]}"
    group = []
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
        with _environment(variables):
            process = context.Process(target=_step_when_told, args=(theirs, build, options), daemon=True)
            process.start()
        theirs.close()
        group.append((process, ours))
    return group


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set ``variables`` inside this context: a process gets those of its start, and Paddle reads them when imported."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _wait(group: Group) -> None:
    try:
        for _, connection in group:
            connection.recv()
    except EOFError as error:
        raise PPOCRExtError(
            "A process of the benchmark has ended; see above.", code="process_failed"
        ) from error


def _step_when_told(connection: Connection, build: Callable[..., Step], options: tuple[object, ...]) -> None:
    """Do a step, and another one each time that it is asked for, until the connection is closed."""
    paddle.set_device("cpu")
    tune_cpu()
    if dist.get_world_size() > 1:
        dist.init_parallel_env()
    step = build(*options)
    step()
    connection.send(True)
    try:
        while connection.recv():
            step()
            connection.send(True)
    except EOFError:
        pass
