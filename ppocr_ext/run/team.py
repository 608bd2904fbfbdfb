"""The processes of one run, which wait for each other without a time limit, and fail together.

Collectives have a time limit (30 seconds with gloo, on CPUs), which is too short for waiting while process 0 evaluates.
Here the processes wait for counters in Paddle's store, and check at the same time that the other processes still live
(``run/peers.py``). They join before anything can fail, so that an error in one of them ends all with its message.

Anybody who reaches the machine can write into this store. So no path in it is opened, and nothing in it is executed.
Results that one process computes for the others of its machine are JSON files in a private folder.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
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
from ppocr_ext.io.atomic import write_text
from ppocr_ext.messages import LOG, end_text
from ppocr_ext.run.machine import interface_of, machine_folder, own_address, spans_machines
from ppocr_ext.run.peers import Board, Peers, Watch

T = TypeVar("T")
# Seconds between two reads of a counter: short at first, since most waits are short.
_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.2
_ALIVE_EVERY = 0.3  # seconds between two checks that the other processes live
_BLAME_WITHIN = 4.0  # seconds to wait for the message of another process after a collective has failed
_COLLECTIVE = re.compile("gloo|nccl|bkcl|xccl", re.IGNORECASE)  # in messages of collectives that have failed
# Seconds that process 0 waits for the others at its end, since they read its message in its store.
_LAST_WORDS = 10.0
_START_WITHIN = 300  # seconds


class Team:
    """The processes of a run, as one of them sees the others.

    Args:
        store: Paddle's ``TCPStore`` (``add``, ``set``, ``get``); None for a single process.
        rank: number of this process.
        size: number of processes.

    Attributes:
        watch: ends this process if another one is lost; None outside :func:`failing_together`.
    """

    def __init__(self, store: Any = None, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.watch: Watch | None = None
        self._store = store
        self._training = 0
        self._board = Board(store)
        self._peers = Peers(self._board, rank, size)
        self._rounds: Counter[str] = Counter()  # how often each name was used
        if store is not None:
            self._peers.join(_log_file())

    def barrier(self) -> None:
        """Wait until every process calls this, without a time limit.

        Raises:
            ProcessError: one of them has failed or was killed.
        """
        if self.size > 1:
            self._rounds["barrier"] += 1
            self._count("barrier", 1)
            self._wait(lambda: self._count("barrier") >= self._rounds["barrier"] * self.size)

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
        return int(answer.numpy()[0])  # not item(), which would keep the watch from running

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
        self._count(f"{key}/there", 1)

    def _read_result(self, key: str, file: Path) -> Any:
        self._wait(lambda: self._count(f"{key}/there") > 0)
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as gone:  # the first process has failed, and removed its files
            reason = self._failure(_BLAME_WITHIN) or f"{self._peers.name(0)} has ended."
            raise self._lost(reason) from gone
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
            self._board.publish(key, text)
        self._wait(lambda: self._count(f"{key}/there") > 0)
        return self._board.text(key) or ""

    def publish_saved(self, checkpoint: Path, step: int) -> None:
        """Tell all processes that ``checkpoint`` has been written after ``step``."""
        if self.size > 1:
            self._peers.publish_saved(checkpoint, step)

    def begin(self) -> None:
        """Begin a training, and to watch the others."""
        self._training += 1
        self._rounds.clear()
        self._board = Board(self._store, self._training)
        self._peers = Peers(self._board, self.rank, self.size)
        self._peers.join(_log_file())
        first = os.environ.get("PADDLE_MASTER") or os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0]
        host, _, port = first.rpartition(":")
        # A connection of its own, since an answer may never come. It waits for 0 other processes.
        store = core.TCPStore(host, int(port), False, 0)
        peers = Peers(Board(store, self._training), self.rank, self.size)
        peers.known = self._peers.known
        self.watch = Watch(peers)

    def end(self) -> None:
        """Stop watching the others."""
        if self.watch is not None:
            self.watch.stop()
            self.watch = None

    def leave(self) -> None:
        """Tell the others that this process has finished, so they do not take it for killed."""
        if self.size > 1:
            with suppress(ProcessError):  # process 0, which has the store, may have finished before
                self._board.add(f"done/{self.rank}", 1)
                self._last_words(waits=True)

    def blame(self, error: BaseException) -> None:
        """Raise an error if the failure of another process has caused ``error``.

        Raises:
            ProcessError: another process failed first; the message names it.
        """
        # A failed collective raises RuntimeError, or OSError without an error number.
        broken = isinstance(error, RuntimeError) or (isinstance(error, OSError) and error.errno is None)
        if self.size > 1 and broken:
            patience = _BLAME_WITHIN
            if self.watch is not None and spans_machines() and _COLLECTIVE.search(str(error)):
                # Only its silence tells that a process of another machine was killed.
                patience += self.watch.patience
            failure = self._failure(patience)
            if failure is not None:
                raise self._lost(failure) from error

    def fail(self, error: BaseException) -> None:
        """Report ``error`` to the others, unless the failure of another process has caused it.

        Raises:
            ProcessError: another process failed first; the message names it.
        """
        if self.size == 1:
            return
        if isinstance(error, ProcessError):
            if self.watch is not None:
                self.watch.note(str(error))
        else:
            try:
                self.blame(error)
            except ProcessError as theirs:
                self.fail(theirs)
                raise
        with suppress(ProcessError):
            if not isinstance(error, ProcessError):
                self._board.publish(f"failed/{self.rank}", end_text(error))
                self._board.add("failures", 1)
            # On one machine the launcher ends the others as soon as one has ended.
            self._last_words(waits=spans_machines())

    def _last_words(self, waits: bool) -> None:
        """Tell that this process ends. Process 0 ends last, since the others read its message in its store."""
        if self.watch is not None:
            self.watch.noticed.set()
        self._rounds["ended"] += 1
        if self.rank:
            self._board.add("ended", 1)
            return
        end = time.monotonic() + _LAST_WORDS * waits
        with suppress(KeyboardInterrupt):  # a launcher whose other processes have ended
            while (
                self._board.add("ended") < self._rounds["ended"] * (self.size - 1) and time.monotonic() < end
            ):
                time.sleep(_LONGEST_PAUSE)

    def _next_key(self, name: str) -> str:
        self._rounds[name] += 1
        return f"{name}/{self._rounds[name]}"

    def _count(self, key: str, count: int = 0) -> int:
        try:
            return self._board.add(key, count)
        except ProcessError as error:
            raise self._lost(self._peers.failure() or "") from error

    def _wait(self, ready: Callable[[], bool]) -> None:
        began = checked = time.monotonic()
        while not ready():  # a pause is a tenth of the time so far, so short waits stay short
            time.sleep(min(max(_FIRST_PAUSE, (time.monotonic() - began) / 10), _LONGEST_PAUSE))
            if time.monotonic() - checked > _ALIVE_EVERY:
                checked = time.monotonic()
                failure = self._failure_now()
                if failure is not None:
                    raise self._lost(failure)

    def _failure(self, seconds: float) -> str | None:
        """Return the message of a process that failed, waiting for ``seconds``; None if all processes live."""
        end = time.monotonic() + seconds
        while (failure := self._failure_now()) is None and time.monotonic() < end:
            time.sleep(_LONGEST_PAUSE)
        return failure

    def _failure_now(self) -> str | None:
        return self._peers.failure() or (None if self.watch is None else self.watch.silent())

    def _lost(self, reason: str) -> ProcessError:
        """Return the error that another process is lost."""
        if self.watch is not None:
            self.watch.noticed.set()
            reason = self.watch.message(reason)
        return ProcessError(reason, code="process_failed")


_TEAM: list[Team] = []  # at most one, since a process belongs to one launcher


def team() -> Team:
    """Return the team of this process; the first call joins the other processes, which must do this too."""
    if not _TEAM:
        size = dist.get_world_size()
        if size == 1:
            _TEAM.append(Team())
            return _TEAM[0]
        if spans_machines():
            LOG.info(
                "waiting at most %d s for the other processes. If one has ended already, as on a machine without this "
                "package, its launcher says why.",
                _START_WITHIN,
            )
        # Within the call, Paddle lets no code of Python run. The signal of the alarm ends this process.
        signal.alarm(_START_WITHIN)
        _TEAM.append(Team(core.create_or_get_global_tcp_store(), dist.get_rank(), size))
        signal.alarm(0)
    return _TEAM[0]


def connect() -> Team:
    """Return the team of this process, connected for collectives; the device must be chosen before."""
    members = team()
    if members.size > 1:
        if spans_machines() and (interface := interface_of(own_address())):
            # By default gloo takes the address of the machine's name, which is 127.0.1.1 on many machines.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        # Otherwise Paddle prints the flags that this package has set.
        with replaced_globals(dist.parallel, {"_print_modified_flags": lambda flags: None}):
            dist.init_parallel_env()
        _send_at_once()
    return members


@contextmanager
def failing_together() -> Iterator[None]:
    """Join the other processes; report an error inside this context to them, or raise theirs if it came first.

    Inside another such context, this one does nothing.

    Raises:
        ProcessError: another process failed first, so this one cannot continue.
    """
    members = team()
    if members.watch is not None or members.size == 1:
        yield
        return
    try:
        members.begin()
        yield
        members.leave()
    except BaseException as error:
        members.fail(error)
        raise
    finally:
        members.end()


def _leader_of(rank: int) -> int:
    """Return the first process of this machine; the launcher numbers the processes of a machine in a row."""
    return rank - int(os.environ.get("PADDLE_LOCAL_RANK", 0))


def is_leader() -> bool:
    """Return True if this process is the first of its machine."""
    return _leader_of(0) == 0


def is_beside_first() -> bool:
    """Return True if this process and process 0 have the same launcher."""
    return _leader_of(dist.get_rank()) == 0


def _send_at_once() -> None:
    """Make the TCP sockets of this process send small messages at once.

    Paddle's store writes a request in two parts. Otherwise the second part would wait 44 ms until the first one is
    acknowledged. A barrier has two requests, which would be a third of a step of a small network. Paddle has no option
    for this, and does not say which socket its store has.
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
