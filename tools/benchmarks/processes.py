"""One process with a thread for each core against one process for each core: seconds of a distillation step.

Both take steps of the same number of samples, in turns; who waits needs no core.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import paddle
import paddle.distributed as dist

from benchmarks.step import our_step, setting
from benchmarks.table import markdown, processor
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.run.device import tune_cpu

Group = list[tuple[Any, Connection]]  # the processes that do a step together
_LAST_STEP = 60.0  # seconds that a process may need to its end


@dataclass(frozen=True)
class ProcessCosts:
    """Seconds a step by processes and threads, and the setting."""

    setting: str
    seconds: dict[str, list[float]]

    def to_markdown(self) -> str:
        """A table with ratios of the best rounds to those of the first row."""
        first = min(next(iter(self.seconds.values())))
        rows = [
            [name, f"{statistics.median(times):.3f}", f"{min(times):.3f}", f"{min(times) / first:.2f}"]
            for name, times in self.seconds.items()
        ]
        head = ["step of", "seconds (median)", "seconds (best)", "best, as a share of the first row"]
        return f"{self.setting}\n\n{markdown(head, rows)}"


def measure_processes(
    size: str, batch_size: int, image: tuple[int, int] | None = None, rounds: int = 5, processes: int = 2
) -> ProcessCosts:
    """Measure a step of one process with ``processes`` threads, and of as many processes with one thread each.

    Args:
        size, image, rounds: as in :func:`benchmarks.step.measure_step`.
        batch_size: images of a step; each of the processes takes its share.
        processes: at least 2.

    Raises:
        PPOCRExtError: the batch cannot be shared, or a process has failed.
    """
    if batch_size % processes:
        raise PPOCRExtError(
            f"--batch {batch_size} cannot be shared by {processes} processes. Fix: a multiple of {processes}.",
            code="bad_value",
        )
    kinds = {
        f"1 process, {processes} threads": (1, processes),
        f"{processes} processes, 1 thread": (processes, 1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    groups = {
        name: _start(count, threads, (size, batch_size // count, image))
        for name, (count, threads) in kinds.items()
    }
    try:
        for group in groups.values():
            _wait(group)
        for turn in range(rounds + 1):
            for name, group in groups.items():
                began = time.perf_counter()
                for _, connection in group:
                    connection.send(True)
                _wait(group)
                if turn:
                    seconds[name].append(time.perf_counter() - began)
    finally:
        members = [member for group in groups.values() for member in group]
        for _, connection in members:
            connection.close()  # which ends the process
        for process, _ in members:
            process.join(_LAST_STEP)
    described = setting(size, batch_size, image)[2]
    described += f" in all, Paddle {paddle.__version__} on cpu, {processor()}, {rounds} rounds"
    return ProcessCosts(described, seconds)


def _start(count: int, threads: int, work: tuple[object, ...]) -> Group:
    """Start ``count`` processes that train together; return the connections to them."""
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
            process = context.Process(target=_step_when_told, args=(theirs, *work), daemon=True)
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


def _step_when_told(
    connection: Connection, size: str, batch_size: int, image: tuple[int, int] | None
) -> None:
    """Do a step, and another one each time that it is asked for, until the connection is closed."""
    paddle.set_device("cpu")
    tune_cpu()
    if dist.get_world_size() > 1:
        dist.init_parallel_env()
    step = our_step(*setting(size, batch_size, image)[:2])
    step()
    connection.send(True)
    try:
        while connection.recv():
            step()
            connection.send(True)
    except EOFError:
        pass
