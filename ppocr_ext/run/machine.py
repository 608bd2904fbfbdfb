"""The processes that Paddle's launcher starts on one machine: their folder, and their end with it; no Paddle."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ppocr_ext.io.atomic import is_running, private_folder, scratch_folder
from ppocr_ext.messages import LOG

_FOLDER = "PPOCR_EXT_PROCESSES_FOLDER"
_STARTER = "PPOCR_EXT_PROCESSES_STARTER"
_LOOK_EVERY = 1.0  # seconds
_GRACE = 8  # seconds that a process has to stop after its launcher is gone


def machine_name() -> str:
    """Return a name for the set of processes that this one can see."""
    with suppress(OSError):
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def starter_environment() -> dict[str, str]:
    """Return the variables with which processes know who has started the launcher, and where they hand on results."""
    return {_FOLDER: str(scratch_folder()), _STARTER: str(os.getpid())}


def machine_folder() -> Path:
    """Return the folder in which the processes of this machine hand on results; other users cannot enter it.

    ``train --processes`` makes and names it. Under a launcher that a user has started, the name follows from that
    process, which starts all those of this machine.

    Raises:
        DataError: others may enter it.
    """
    launcher = hashlib.sha256(f"{machine_name()} {os.getppid()}".encode()).hexdigest()[:16]
    return private_folder(Path(os.environ.get(_FOLDER) or f"{tempfile.gettempdir()}/ppocr_ext_{launcher}"))


@contextmanager
def ending_with_launcher() -> Iterator[None]:
    """Inside this context, stop as by SIGTERM if the launcher, or who has started it, is gone.

    A process that then does not stop, because it computes or waits for another one, is killed by the system. Does
    nothing in a process that Paddle's launcher has not started.
    """
    done = threading.Event()
    watch = None
    if "PADDLE_LOCAL_RANK" in os.environ and hasattr(signal, "alarm"):  # not on Windows
        watch = threading.Thread(target=_watch, args=(os.getppid(), done), daemon=True)
        watch.start()
    try:
        yield
    finally:
        done.set()
        if watch is not None:
            watch.join()


def _watch(launcher: int, done: threading.Event) -> None:
    while not _is_gone(launcher):
        if done.wait(_LOOK_EVERY) and not _is_gone(launcher):
            return
    if not done.is_set():
        # needs no Python, which may be busy; the next thread that it runs may be a long way off
        signal.alarm(_GRACE)
    LOG.error(
        "the launcher of this process, or the command that started it, is gone: this process stops, and is killed if "
        "that takes more than %d seconds",
        _GRACE,
    )
    if not done.is_set():  # else another process has seen it first, and all are stopping
        os.kill(os.getpid(), signal.SIGTERM)


def _is_gone(launcher: int) -> bool:
    starter = os.environ.get(_STARTER)
    return os.getppid() != launcher or (starter is not None and not is_running(int(starter)))
