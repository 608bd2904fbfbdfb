"""What a process of a run knows of the others, and the thread that ends it when another one is lost.

A process that waits in a collective can do nothing else: with gloo it crashes after 30 seconds, with NCCL later. So a
thread counts in Paddle's store that its process lives, and watches the counters of the others. It may wait for ever
itself, if the machine of the store cannot be reached. A second thread notices this, and ends the process. If a
collective crashes sooner, because a connection was closed, the crash waits for this thread.

Only times of this process's own clock are compared.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ppocr_ext.errors import PPOCRExtError, ProcessError
from ppocr_ext.io.atomic import is_running, machine_name
from ppocr_ext.messages import LOG, error_text
from ppocr_ext.run.machine import own_address, spans_machines

_LOOK_EVERY = 0.5  # seconds
_STUCK = (
    5.0  # seconds within one call, such as a collective, after which the main thread does not end by itself
)
_LAST_WORK = 30.0  # seconds that it has to evaluate, save and end after another process is lost
_RECORD_WITHIN = 8  # seconds to write run.json
_SAVED = "saved"
_KILLED = "killed, perhaps for lack of memory"
_HANDLER = ctypes.CFUNCTYPE(None)


class Board:
    """Counters and texts in Paddle's store, which all processes read and write.

    All methods raise ProcessError if process 0, which has the store, has ended.

    Args:
        store: Paddle's ``TCPStore`` (``add``, ``set``, ``get``). One thread at a time may use it.
        training: number of the training, since a process may do several, one after the other.
    """

    def __init__(self, store: Any, training: int = 0) -> None:
        self._store = store
        self._prefix = f"ppocr_ext/{training}/"

    def _ask(self, method: str, key: str, *values: Any) -> Any:
        try:
            return getattr(self._store, method)(self._prefix + key, *values)
        except (RuntimeError, ValueError, OSError) as error:
            raise ProcessError(code="process_failed") from error

    def add(self, key: str, count: int = 0) -> int:
        """Add ``count`` to a counter, and return it."""
        return int(self._ask("add", key, count))

    def publish(self, key: str, text: str) -> None:
        """Write a text."""
        self._ask("set", key, text)
        self.add(f"{key}/there", 1)

    def text(self, key: str) -> str | None:
        """Return a text; None if it is not there yet."""
        if not self.add(f"{key}/there"):
            return None
        value = self._ask("get", key)
        return str(value, "utf-8") if isinstance(value, bytes) else str(value)


class Process(NamedTuple):
    """A process of the run.

    Attributes:
        machine: name of its machine.
        pid: its number there.
        address: its network address, by which the others know it.
        log: where its messages are.
    """

    machine: str
    pid: int
    address: str
    log: str


class Peers:
    """The other processes, seen by one thread of this process.

    Args:
        board: the thread's own connection.
        rank: number of this process.
        size: number of processes.

    Attributes:
        known: the other processes that have joined. Threads may share it, since it only grows.
        saved: the last checkpoint, in words; empty if there is none.
    """

    def __init__(self, board: Board, rank: int, size: int) -> None:
        self.board = board
        self.rank = rank
        self.size = size
        self.others = [other for other in range(size) if other != rank]
        self.saved = ""
        self.known: dict[int, Process] = {}

    def join(self, log: str) -> None:
        """Tell the others who this process is; ``log`` is where its messages are."""
        own = (machine_name(), str(os.getpid()), own_address() or "this machine", log)
        self.board.publish(f"process/{self.rank}", "\n".join(own))

    def process(self, rank: int) -> Process | None:
        """Return a process; None if it has not joined yet."""
        if rank not in self.known and (text := self.board.text(f"process/{rank}")):
            machine, pid, address, log = text.split("\n", 3)
            self.known[rank] = Process(machine, int(pid), address, log)
        return self.known.get(rank)

    def name(self, rank: int) -> str:
        """Return the name of a process for a message, with its address."""
        process = self.known.get(rank)
        where = "" if process is None else f" ({process.address}; its messages: {process.log})"
        return f"Process {rank} of {self.size}{where}"

    def failure(self) -> str | None:
        """Return what is known of a process that has failed or was killed, in words; None if there is none."""
        try:
            for rank in self.others:
                self.process(rank)
            if self.board.add("failures"):
                for rank in self.others:
                    if (text := self.board.text(f"failed/{rank}")) is not None:
                        return f"{self.name(rank)} has failed: {text}"
            if self.board.add(f"{_SAVED}/there"):
                self.saved = self.board.text(_SAVED) or ""
            for rank, process in self.known.items():
                if (
                    process.machine == machine_name()
                    and not is_running(process.pid)
                    and not self.is_done(rank)
                ):
                    # Other machines cannot see this.
                    self.board.publish(f"failed/{rank}", _KILLED)
                    self.board.add("failures", 1)
                    return f"{self.name(rank)} has failed: {_KILLED}"
        except ProcessError:
            return f"{self.name(0)} has ended, and the run with it. The launcher there shows its messages."
        return None

    def is_done(self, rank: int) -> bool:
        """Return True if a process has finished its training."""
        return self.board.add(f"done/{rank}") > 0

    def publish_saved(self, checkpoint: Path, step: int) -> None:
        """Tell all that ``checkpoint`` has been written after ``step``."""
        where = f", on {own_address()}" if spans_machines() else ""
        self.board.publish(_SAVED, f"{checkpoint} (step {step}){where}")


class Watch:
    """Two threads that end this process if another one is lost and it cannot notice this itself.

    Args:
        peers: the other processes, by a connection of the threads' own.

    Attributes:
        noticed: set when the main thread knows that another process is lost, and ends.
        step: returns the step after which the run is; None before the first one.
        record: called with the reason before the process ends.
        patience: seconds without a sign of life after which a process is lost.
    """

    def __init__(self, peers: Peers) -> None:
        self.noticed = threading.Event()
        self.step: Callable[[], int | None] = lambda: None
        self.record: Callable[[str], None] = lambda reason: None
        self._peers = peers
        self._ended = threading.Event()
        self._found: str | None = None
        # On a GPU, compiling may keep the threads from running for longer, and no collective crashes so soon.
        self.patience = 15.0 if os.environ.get("PADDLE_DISTRI_BACKEND") == "gloo" else 45.0
        self._looked = time.monotonic()
        self._heard = dict.fromkeys(peers.others, self._looked)
        self._end_crash_delay = _delay_crashes(self.patience + _LAST_WORK + _RECORD_WITHIN)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._follow, self._judge)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads: this process ends."""
        self._ended.set()
        for thread in self._threads:  # not for ever, since an answer of the store may never come
            thread.join(_STUCK)
        self._end_crash_delay()

    def message(self, reason: str) -> str:
        """Return ``reason`` with the step and the last checkpoint."""
        step = self.step()
        if step is None:
            return reason
        saved = self._peers.saved
        last = (
            f"Its last checkpoint: {saved}. Fix: continue with train --resume RUN"
            f"{', with these files on every machine' * spans_machines()}."
            if saved
            else "It has no checkpoint yet."
        )
        return f"{reason}\nThe run has ended after step {step}. {last}"

    def _follow(self) -> None:
        """Count that this process lives, and look after the others, until one is lost."""
        peers = self._peers
        counts: dict[int, int] = {}
        while not self._ended.wait(_LOOK_EVERY) and self._found is None:
            found = peers.failure()
            with suppress(ProcessError):  # process 0 has just ended, which the next look finds
                peers.board.add(f"alive/{peers.rank}", 1)
                for rank in peers.others:
                    count = peers.board.add(f"alive/{rank}")
                    if count != counts.get(rank) or rank not in peers.known or peers.is_done(rank):
                        self._heard[rank] = time.monotonic()
                    counts[rank] = count
            self._looked = time.monotonic()
            self._found = found

    def _judge(self) -> None:
        """End this process if another one is lost, and its main thread is stuck or takes too long."""
        place: tuple[int, int] | None = None
        moved = 0.0
        began: float | None = None
        while not self._ended.wait(_LOOK_EVERY):
            lost = self._found or self.silent()
            if lost is None:
                began = None
                continue
            now = time.monotonic()
            before, place = place, _place_of_main_thread()
            if began is None or place != before:
                moved = now
            began = began or now
            is_stuck = now - moved > _STUCK and not self.noticed.is_set()
            if is_stuck or now - began > _LAST_WORK:
                self._end(lost)

    def _end(self, lost: str) -> None:
        signal.alarm(_RECORD_WITHIN)  # the folder of the run may be on a machine that cannot be reached
        if self._found:
            with suppress(ProcessError):
                self._peers.board.add("ended", 1)
        message = self.message(lost)
        LOG.error("%s", message)
        self.note(message)
        os._exit(PPOCRExtError.exit_code)

    def note(self, reason: str) -> None:
        """Write ``reason`` into the record of the run."""
        try:
            self.record(reason)
        except (OSError, ValueError) as error:
            LOG.error("run.json: %s", error_text(error))

    def silent(self) -> str | None:
        """Return which process gives no sign of life, in words."""
        now = time.monotonic()
        # Without an answer of the store, which is in process 0, nothing is known of the others.
        is_cut = self._peers.rank and now - self._looked > self.patience
        for rank, heard in ({0: self._looked} if is_cut else self._heard).items():
            if now - heard > self.patience:
                return (
                    f"{self._peers.name(rank)} has given no sign of life for {now - heard:.0f} s: its machine or the "
                    f"network is down, or the process is stopped or killed."
                )
        return None


def _place_of_main_thread() -> tuple[int, int] | None:
    """Return what changes while the main thread runs Python code."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return frame and (id(frame), frame.f_lasti)


def _delay_crashes(seconds: float) -> Callable[[], object]:
    """Let each thread that crashes by an exception in C++ wait first; return what ends this.

    Within a backward pass, nothing catches the exception that gloo raises when another process is lost.
    """
    try:
        set_terminate = ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE
    except (OSError, AttributeError):  # another C++ library
        return lambda: None
    set_terminate.argtypes, set_terminate.restype = [_HANDLER], _HANDLER

    def wait() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(KeyboardInterrupt):  # the launcher ends the processes of this machine
                time.sleep(max(0.0, end - time.monotonic()))
        before()

    handler = _HANDLER(wait)
    before = set_terminate(handler)
    return lambda: set_terminate(before) and handler
