"""Signals of this process, and child processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from ppocr_ext.io.atomic import own_file

_REPEATED = 2.0  # seconds; Paddle's launcher sends SIGTERM three times, a fifth of a second apart
_LAST_REPEATED = 1.0  # seconds after the first; until then the handlers stay


def termination_signals() -> list[signal.Signals]:
    """Return the signals that ask a process to end: SIGTERM, and SIGHUP (its terminal is closed) unless ignored."""
    if not hasattr(signal, "SIGHUP") or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # Windows; `nohup`
        return [signal.SIGTERM]
    return [signal.SIGTERM, signal.SIGHUP]


@contextmanager
def deferred_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Call ``on_signal`` at the first SIGINT, SIGTERM or SIGHUP inside this context; let a second one act at once.

    A SIGTERM or SIGHUP that follows another within two seconds is the same one. A SIGHUP that is ignored (``nohup``)
    stays so.

    Only the main thread can receive signals; elsewhere this does nothing.
    """
    first: tuple[int, float] | None = None

    def received(number: int, frame: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = (number, now)
            on_signal(number)
        elif signal.SIGINT in (number, first[0]) or now - first[1] >= _REPEATED:
            handlers.close()
            signal.raise_signal(number)

    with ExitStack() as handlers:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *termination_signals()):
                before = signal.signal(number, received)
                if before is not None:  # None: a handler that was not set from Python
                    handlers.callback(signal.signal, number, before)
                # a signal during Paddle's communication with other processes would otherwise be an error there
                if hasattr(signal, "siginterrupt"):  # not on Windows
                    signal.siginterrupt(number, False)
        yield
        # what follows must not be ended by the same signal, sent again
        if first is not None and first[0] != signal.SIGINT:
            time.sleep(max(0.0, first[1] + _LAST_REPEATED - time.monotonic()))


_PATIENCE = 120.0  # seconds that a training has for its last step and its checkpoint
_SCRIPT = str(Path(__file__).with_name("child_script.py"))


def start_child(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``ppocr-ext WORDS``; what it prints goes to ``log``. Ctrl-C does not reach it: see :func:`stop_child`.

    If this process is killed, it stops as by SIGTERM.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb", opener=own_file) as output:
        return subprocess.Popen(
            [sys.executable, _SCRIPT, *words],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop_child(process: subprocess.Popen[bytes]) -> None:
    """Ask ``process`` to end as by SIGTERM, wait, and kill it if it does not; a second Ctrl-C kills it at once.

    Does nothing if it has ended.
    """
    if process.stdin is not None:
        process.stdin.close()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
    finally:
        process.kill()
        process.wait()


def last_error(log: Path) -> str | None:
    """Return the last message of an error in ``log``, in the form in which a command of ppocr-ext prints it."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else None
