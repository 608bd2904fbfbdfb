"""The processes that Paddle's launcher starts on one machine: address, private folder, end; imports no Paddle."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ppocr_ext.io.atomic import is_running, machine_name, private_folder, scratch_folder
from ppocr_ext.messages import LOG

_FOLDER = "PPOCR_EXT_PROCESSES_FOLDER"
_STARTER = "PPOCR_EXT_PROCESSES_STARTER"
_LOOK_EVERY = 1.0  # seconds between two looks at the launcher
_SIOCGIFADDR = 0x8915  # a request of Linux: the address of an interface, at byte 20 of the answer
_GRACE = 8  # seconds that a process has to stop after its launcher is gone


def own_address() -> str:
    """Return the network address that Paddle's launcher has given to this process; empty without a launcher."""
    return os.environ.get("PADDLE_CURRENT_ENDPOINT", "").rpartition(":")[0]


def spans_machines() -> bool:
    """Return True if the processes of this run have several network addresses."""
    endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
    return len({endpoint.rpartition(":")[0] for endpoint in endpoints}) > 1


def interface_of(address: str) -> str | None:
    """Return the name of the network interface with an IPv4 address or host name; None if it is not found."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, suppress(OSError):
        wanted = socket.inet_aton(socket.gethostbyname(address))
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                request = struct.pack("256s", name.encode())
                if fcntl.ioctl(any_socket, _SIOCGIFADDR, request)[20:24] == wanted:
                    return name
    return None


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
    if "PADDLE_LOCAL_RANK" in os.environ:
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
