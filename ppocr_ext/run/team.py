"""The processes of one run: they wait for each other without a time limit, and fail together.

A collective gives up: gloo, on CPUs, after 30 seconds, so that processes which wait in one while
process 0 evaluates would end the run. Here they wait at counters in the store through which Paddle's
processes found each other, and look meanwhile whether the others still live.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import paddle
import paddle.distributed as dist
from paddle.base import core

from ppocr_ext.errors import PPOCRExtError, ProcessError
from ppocr_ext.messages import end_text

T = TypeVar("T")
_PREFIX = "ppocr_ext/"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.2  # seconds between two looks at a counter
_ALIVE_EVERY = 0.3  # seconds between two looks at the other processes
_BLAME_WITHIN = 4.0  # seconds in which the process that began it says why, after a collective broke

_STORE_IS_GONE = (RuntimeError, ValueError, OSError)  # Paddle's kinds of error when nobody answers
_FIRST_ENDED = "Process 0 has ended, which keeps this run together. Its messages are what the launcher shows."


class Team:
    """This process among those of its run.

    Args:
        store: Paddle's ``TCPStore``: ``add``, ``set``, ``get``; None where there is one process.
        rank: number of this process.
        size: number of processes.
    """

    def __init__(self, store: Any = None, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self._store = store
        self._met = 0
        self._counts: dict[str, int] = {}
        self._folder: str | None = None
        self._files = 0
        if store is not None:
            self._publish(f"process/{rank}", f"{_machine()} {os.getpid()} {_log_file()}")

    def meet(self) -> None:
        """Wait until every process is here, however long that takes.

        Raises:
            ProcessError: one of them has failed, or is gone.
        """
        if self.size == 1:
            return
        self._met += 1
        self._add("met", 1)
        self._wait(lambda: self._add("met") >= self._met * self.size)

    def any(self, asked: bool) -> bool:
        """Whether any process asks; the same answer in all of them.

        Raises:
            ProcessError: see :meth:`meet`.
        """
        if self.size == 1:
            return asked
        self.meet()
        answer = paddle.to_tensor([int(asked)])
        dist.all_reduce(answer, op=dist.ReduceOp.MAX)
        return bool(answer.item())

    def once_a_machine(self, name: str, work: Callable[[], T]) -> T:
        """The result of ``work``, done by the first process of each machine and handed to its others.

        Args:
            name: of the work; all processes of a machine do the works of one name in the same order.
            work: gives something that can be pickled.

        Raises:
            PPOCRExtError: what ``work`` raised, in every process of the machine.
        """
        if self.size == 1 or not _known_machine():
            return work()
        leader = _leader_of(self.rank)
        key = f"work/{leader}/{self._numbered(name)}"
        if self.rank == leader:
            return self._do(work, key)
        self._wait(lambda: self._add(f"{key}/there") > 0)
        try:
            content = Path(self._text(key)).read_bytes()
        except FileNotFoundError as gone:  # it goes with the process, which has failed in this work
            raise ProcessError(self._who_failed(time.monotonic() + _BLAME_WITHIN) or _FIRST_ENDED) from gone
        result, fault = pickle.loads(content)
        if fault is not None:
            raise fault
        return result

    def _do(self, work: Callable[[], T], key: str) -> T:
        try:
            result = work()
        except PPOCRExtError as fault:
            self._publish(key, self._left_in_a_file((None, fault)))
            raise
        self._publish(key, self._left_in_a_file((result, None)))
        return result

    def _left_in_a_file(self, content: Any) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="ppocr_ext_")
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._files += 1
        file = Path(self._folder) / f"{self._files}.pickle"
        file.write_bytes(pickle.dumps(content))
        return str(file)

    def as_process_0_says(self, name: str, text: str) -> str:
        """The ``text`` that process 0 gives under this ``name``; its own in process 0.

        Raises:
            ProcessError: process 0 has failed before it said so.
        """
        if self.size == 1:
            return text
        key = f"said/{self._numbered(name)}"
        if self.rank == 0:
            self._publish(key, text)
            return text
        self._wait(lambda: self._add(f"{key}/there") > 0)
        return self._text(key)

    def done(self) -> None:
        """This process has no more to do with the others."""
        if self.size > 1:
            with suppress(ProcessError):  # process 0, which keeps the store, may be done before
                self._add(f"done/{self.rank}", 1)

    def failed(self, fault: BaseException) -> None:
        """Tell the others of ``fault``, unless it is the consequence of a failure of theirs.

        Raises:
            ProcessError: it is; the message says whose.
        """
        if self.size == 1 or isinstance(fault, ProcessError):
            return
        if _may_be_a_broken_collective(fault):
            blamed = self._who_failed(time.monotonic() + _BLAME_WITHIN)
            if blamed is not None:
                raise ProcessError(blamed) from fault
        with suppress(*_STORE_IS_GONE, ProcessError):
            self._publish(f"failed/{self.rank}", end_text(fault))
            self._add("failures", 1)

    def _numbered(self, name: str) -> str:
        self._counts[name] = self._counts.get(name, 0) + 1
        return f"{name}/{self._counts[name]}"

    def _wait(self, ready: Callable[[], bool]) -> None:
        began = looked = time.monotonic()
        while not ready():  # pauses of a tenth of the wait: who is always a little early loses little more
            time.sleep(min(max(_FIRST_PAUSE, (time.monotonic() - began) / 10), _LONGEST_PAUSE))
            if time.monotonic() - looked > _ALIVE_EVERY:
                looked = time.monotonic()
                blamed = self._failed_one()
                if blamed is not None:
                    raise ProcessError(blamed)

    def _who_failed(self, until: float) -> str | None:
        while (blamed := self._failed_one()) is None and time.monotonic() <= until:
            time.sleep(_LONGEST_PAUSE)
        return blamed

    def _failed_one(self) -> str | None:
        """What to say of a process that failed or is gone; None while all live."""
        try:
            others = [rank for rank in range(self.size) if rank != self.rank]
            if self._add("failures"):
                for rank in others:
                    if self._add(f"failed/{rank}/there"):
                        return f"{self._named(rank)} has failed: {self._text(f'failed/{rank}')}"
            for rank in others:
                if self._add(f"done/{rank}"):
                    continue
                if self._add(f"process/{rank}/there") and self._is_gone(rank):
                    return f"{self._named(rank)} is gone (killed, perhaps for want of memory)."
        except (*_STORE_IS_GONE, ProcessError):
            return _FIRST_ENDED
        return None

    def _named(self, rank: int) -> str:
        log = self._text(f"process/{rank}").split(" ", 2)[2]
        return f"Process {rank} of {self.size} (its messages: {log})"

    def _is_gone(self, rank: int) -> bool:
        machine, pid = self._text(f"process/{rank}").split(" ", 2)[:2]
        return machine == _machine() and not _runs(int(pid))

    def _publish(self, key: str, text: str) -> None:
        self._store.set(_PREFIX + key, text)
        self._add(f"{key}/there", 1)

    def _text(self, key: str) -> str:
        value = self._store.get(_PREFIX + key)
        return str(value, "utf-8") if isinstance(value, bytes) else str(value)

    def _add(self, key: str, count: int = 0) -> int:
        try:
            return int(self._store.add(_PREFIX + key, count))
        except _STORE_IS_GONE as fault:
            raise ProcessError(_FIRST_ENDED) from fault


_TEAM: list[Team] = []  # at most one: a process belongs to one run of the launcher


def team() -> Team:
    """This process's team; it finds the others on the first call."""
    if not _TEAM:
        size = dist.get_world_size()
        if size > 1:
            dist.init_parallel_env()
            _TEAM.append(Team(core.create_or_get_global_tcp_store(), dist.get_rank(), size))
        else:
            _TEAM.append(Team())
    return _TEAM[0]


@contextmanager
def failing_together() -> Iterator[None]:
    """An error within, once this process has found its team, is told to the others, or said to be another's.

    Raises:
        ProcessError: another process failed first, and this one could not go on without it.
    """
    try:
        yield
    except BaseException as fault:
        if _TEAM:
            _TEAM[0].failed(fault)
        raise
    if _TEAM:
        _TEAM[0].done()


def _known_machine() -> bool:
    return "PADDLE_LOCAL_RANK" in os.environ


def _leader_of(rank: int) -> int:
    """The first process on this machine; the launcher numbers those of a machine in a row."""
    return rank - int(os.environ.get("PADDLE_LOCAL_RANK", 0))


def is_leader() -> bool:
    """Whether this process is the first of its machine."""
    return int(os.environ.get("PADDLE_LOCAL_RANK", 0)) == 0


def _machine() -> str:
    """Names the set of processes that this one can see."""
    with suppress(OSError):
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def _log_file() -> str:
    """Where the launcher writes what this process says."""
    folder = os.environ.get("PADDLE_LOG_DIR")
    if folder is None:
        return "on its own terminal"
    return str(Path(folder) / f"workerlog.{os.environ.get('PADDLE_LOCAL_RANK', 0)}")


def _may_be_a_broken_collective(fault: BaseException) -> bool:
    """Paddle raises such as RuntimeError, or as an OSError that has no number of the system's."""
    return isinstance(fault, RuntimeError) or (isinstance(fault, OSError) and fault.errno is None)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # a child that was killed stays in the table until the launcher looks at it
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:  # no /proc on this system, or a process of another user
        return True
