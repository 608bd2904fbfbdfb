"""The processes of one run, which wait for each other without a time limit, and fail together.

Collectives have a time limit (30 seconds with gloo, on CPUs), which is too short for waiting while process 0 evaluates.
Here the processes wait for counters in Paddle's store, and check at the same time that the other processes still live.

Anybody who reaches the machine can write into this store. So it never holds paths, and nothing in it is executed.
Results that one process computes for the others of its machine are JSON files in a private folder.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import paddle
import paddle.distributed as dist
from paddle.base import core

from ppocr_ext.errors import PPOCRExtError, ProcessError
from ppocr_ext.host.facade import replaced_globals
from ppocr_ext.io.atomic import is_running, write_text
from ppocr_ext.messages import end_text
from ppocr_ext.run.machine import machine_folder, machine_name

T = TypeVar("T")
_PREFIX = "ppocr_ext/"
# Seconds between two reads of a counter: short at first, since most waits are short.
_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.2
_ALIVE_EVERY = 0.3  # seconds between two checks that the other processes live
_BLAME_WITHIN = 4.0  # seconds to wait for the message of another process after a collective has failed

_STORE_IS_GONE = (RuntimeError, ValueError, OSError)  # raised by Paddle's store if process 0 has ended
_FIRST_ENDED = "Process 0 has ended, and the run with it. The launcher shows its messages."


class Team:
    """The processes of a run, as one of them sees the others.

    Args:
        store: Paddle's ``TCPStore`` (``add``, ``set``, ``get``); None for a single process.
        rank: number of this process.
        size: number of processes.
    """

    def __init__(self, store: Any = None, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self._store = store
        self._rounds: Counter[str] = Counter()  # how often each name was used
        if store is not None:
            _send_at_once()
            self._publish(f"process/{rank}", f"{machine_name()} {os.getpid()} {_log_file()}")

    def barrier(self) -> None:
        """Wait until every process calls this, without a time limit.

        Raises:
            ProcessError: one of them has failed or was killed.
        """
        if self.size > 1:
            self._rounds["barrier"] += 1
            self._add("barrier", 1)
            self._wait(lambda: self._add("barrier") >= self._rounds["barrier"] * self.size)

    def highest(self, number: int) -> int:
        """Return the highest ``number`` of all processes; a barrier too.

        Raises:
            ProcessError: see :meth:`barrier`.
        """
        return self._reduced(number, dist.ReduceOp.MAX)

    def total(self, number: int) -> int:
        """Return the sum of the ``number`` of all processes; see :meth:`highest`."""
        return self._reduced(number, dist.ReduceOp.SUM)

    def _reduced(self, number: int, how: int) -> int:
        if self.size == 1:
            return number
        self.barrier()
        answer = paddle.to_tensor([number])
        dist.all_reduce(answer, op=how)
        return int(answer.item())

    def once_per_machine(
        self, name: str, work: Callable[[], T], to_json: Callable[[T], Any], from_json: Callable[[Any], T]
    ) -> T:
        """Return the result of ``work``, which is called only in the first process of each machine.

        Args:
            name: the name of the work; all processes of a machine must use names in the same order.
            work: called in the first process.
            to_json: returns those values of the result that the other processes need, in plain containers.
            from_json: returns a result for the other processes from these values.

        Raises:
            PPOCRExtError: raised by ``work``; in the other processes, an error with the same message and code.
        """
        if self.size == 1 or "PADDLE_LOCAL_RANK" not in os.environ:
            return work()
        leader = _leader_of(self.rank)
        key = self._next_key(f"work/{leader}/{name}")
        file = machine_folder() / f"{key.replace('/', '_')}.json"
        if self.rank != leader:
            return from_json(self._read_result(key, file))
        try:
            result = work()
        except PPOCRExtError as error:
            self._write_result(key, file, {"error": [str(error), error.code]})
            raise
        self._write_result(key, file, {"result": to_json(result)})
        return result

    def _write_result(self, key: str, file: Path, content: dict[str, Any]) -> None:
        atexit.register(shutil.rmtree, file.parent, ignore_errors=True)
        write_text(file, json.dumps(content))
        self._add(f"{key}/there", 1)

    def _read_result(self, key: str, file: Path) -> Any:
        self._wait(lambda: self._add(f"{key}/there") > 0)
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as gone:  # the first process has failed, and removed its files
            raise ProcessError(self._failure(_BLAME_WITHIN) or _FIRST_ENDED, code="process_failed") from gone
        if "error" in content:
            message, code = content["error"]
            raise PPOCRExtError(message, code=code)
        return content["result"]

    def text_of_first(self, name: str, text: str) -> str:
        """Return the ``text`` that process 0 passes for ``name``.

        Raises:
            ProcessError: process 0 has failed.
        """
        if self.size == 1:
            return text
        key = self._next_key(f"text/{name}")
        if self.rank == 0:
            self._publish(key, text)
        self._wait(lambda: self._add(f"{key}/there") > 0)
        return self._text(key)

    def leave(self) -> None:
        """Tell the others that this process has finished, so they do not take it for killed."""
        if self.size > 1:
            with suppress(ProcessError):  # process 0, which has the store, may have finished before
                self._add(f"done/{self.rank}", 1)

    def fail(self, error: BaseException) -> None:
        """Report ``error`` to the others, unless the failure of another process has caused it.

        Raises:
            ProcessError: another process failed first; the message names it.
        """
        if self.size == 1 or isinstance(error, ProcessError):
            return
        # A failed collective raises RuntimeError, or OSError without an error number.
        if isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno is None):
            failure = self._failure(_BLAME_WITHIN)
            if failure is not None:
                raise ProcessError(failure, code="process_failed") from error
        with suppress(*_STORE_IS_GONE, ProcessError):
            self._publish(f"failed/{self.rank}", end_text(error))
            self._add("failures", 1)

    def _next_key(self, name: str) -> str:
        self._rounds[name] += 1
        return f"{name}/{self._rounds[name]}"

    def _wait(self, ready: Callable[[], bool]) -> None:
        began = checked = time.monotonic()
        while not ready():  # a pause is a tenth of the time so far, so short waits stay short
            time.sleep(min(max(_FIRST_PAUSE, (time.monotonic() - began) / 10), _LONGEST_PAUSE))
            if time.monotonic() - checked > _ALIVE_EVERY:
                checked = time.monotonic()
                failure = self._failure()
                if failure is not None:
                    raise ProcessError(failure, code="process_failed")

    def _failure(self, seconds: float = 0.0) -> str | None:
        """Return the message of a process that failed, waiting for ``seconds``; None if all processes live."""
        end = time.monotonic() + seconds
        while (failure := self._failure_now()) is None and time.monotonic() < end:
            time.sleep(_LONGEST_PAUSE)
        return failure

    def _failure_now(self) -> str | None:
        others = [rank for rank in range(self.size) if rank != self.rank]
        try:
            if self._add("failures"):
                for rank in others:
                    if self._add(f"failed/{rank}/there"):
                        return f"{self._named(rank)} has failed: {self._text(f'failed/{rank}')}"
            for rank in others:
                if self._add(f"done/{rank}") or not self._add(f"process/{rank}/there"):
                    continue
                machine, pid = self._text(f"process/{rank}").split(" ", 2)[:2]
                if machine == machine_name() and not is_running(int(pid)):
                    return f"{self._named(rank)} is gone (killed, perhaps for lack of memory)."
        except (*_STORE_IS_GONE, ProcessError):
            return _FIRST_ENDED
        return None

    def _named(self, rank: int) -> str:
        log = self._text(f"process/{rank}").split(" ", 2)[2]
        return f"Process {rank} of {self.size} (its messages: {log})"

    def _publish(self, key: str, text: str) -> None:
        self._store.set(_PREFIX + key, text)
        self._add(f"{key}/there", 1)

    def _text(self, key: str) -> str:
        value = self._store.get(_PREFIX + key)
        return str(value, "utf-8") if isinstance(value, bytes) else str(value)

    def _add(self, key: str, count: int = 0) -> int:
        try:
            return int(self._store.add(_PREFIX + key, count))
        except _STORE_IS_GONE as error:
            raise ProcessError(_FIRST_ENDED, code="process_failed") from error


_TEAM: list[Team] = []  # at most one, since a process belongs to one launcher


def team() -> Team:
    """Return the team of this process; the first call connects to the other processes."""
    if not _TEAM:
        size = dist.get_world_size()
        if size > 1:
            # Otherwise Paddle prints the flags that this package has set.
            with replaced_globals(dist.parallel, {"_print_modified_flags": lambda flags: None}):
                dist.init_parallel_env()
            _TEAM.append(Team(core.create_or_get_global_tcp_store(), dist.get_rank(), size))
        else:
            _TEAM.append(Team())
    return _TEAM[0]


@contextmanager
def failing_together() -> Iterator[None]:
    """Report an error inside this context to the other processes, or raise theirs if it came first.

    Raises:
        ProcessError: another process failed first, so this one cannot continue.
    """
    try:
        yield
    except BaseException as error:
        if _TEAM:
            _TEAM[0].fail(error)
        raise
    if _TEAM:
        _TEAM[0].leave()


def _leader_of(rank: int) -> int:
    """Return the first process of this machine; the launcher numbers the processes of a machine in a row."""
    return rank - int(os.environ.get("PADDLE_LOCAL_RANK", 0))


def is_leader() -> bool:
    """Return True if this process is the first of its machine."""
    return _leader_of(0) == 0


def _send_at_once() -> None:
    """Make the TCP sockets of this process send small messages at once.

    Paddle's store writes a request in two parts. Otherwise the second part would wait 44 ms until the first one is
    acknowledged. A barrier has two requests, which would be a third of a step of a small network.
    """
    for file in filter(Path.is_socket, Path("/proc/self/fd").glob("*")):
        with (
            suppress(OSError),  # the socket is not a TCP socket, or is closed
            socket.fromfd(int(file.name), socket.AF_INET, socket.SOCK_STREAM) as each,
        ):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _log_file() -> str:
    """Return where the output of this process is, for a message."""
    folder = os.environ.get("PADDLE_LOG_DIR")
    log = f"workerlog.{os.environ.get('PADDLE_LOCAL_RANK', 0)}"
    return "on its own terminal" if folder is None else str(Path(folder, log))
