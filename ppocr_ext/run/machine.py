"""The processes that Paddle's launcher starts on one machine: their private folder and their end; no Paddle."""

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
_LOOK_EVERY = 1.0  # seconds between two looks at the launcher
_GRACE = 8  # seconds that a process has to stop after its launcher is gone


def machine_name() -> str:
    """Return a name for this machine, or for the container in it. Processes with the same name see each other."""
    with suppress(OSError):
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def starter_environment() -> dict[str, str]:
    """Return environment variables that tell the processes who started the launcher and which folder they share."""
    return {_FOLDER: str(scratch_folder()), _STARTER: str(os.getpid())}


def machine_folder() -> Path:
    """Return the private folder in which the processes of this machine share results.

    ``train --processes`` creates it and passes its name on. If the user has started the launcher, the name follows from
    the number of that process, which is the parent of all processes of this machine.

    Raises:
        DataError: other users may enter the folder.
    """
    launcher = hashlib.sha256(f"{machine_name()} {os.getppid()}".encode()).hexdigest()[:16]
    return private_folder(Path(os.environ.get(_FOLDER) or f"{tempfile.gettempdir()}/ppocr_ext_{launcher}"))


@contextmanager
def ending_with_launcher() -> Iterator[None]:
    """Inside this context, stop as after SIGTERM if the launcher, or the command that started it, has ended.

    If the process does not stop, because it computes or waits for another one, the system kills it. Does nothing in a
    process that Paddle's launcher has not started.
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
        # The system kills the process then, even if Python never gets to run the handler of SIGTERM.
        signal.alarm(_GRACE)
    LOG.error(
        "the launcher of this process, or the command that started it, has ended: this process stops, and is killed if "
        "that takes more than %d seconds",
        _GRACE,
    )
    if not done.is_set():  # if it is set, all processes are stopping already
        os.kill(os.getpid(), signal.SIGTERM)


def _is_gone(launcher: int) -> bool:
    starter = os.environ.get(_STARTER)
    return os.getppid() != launcher or (starter is not None and not is_running(int(starter)))
