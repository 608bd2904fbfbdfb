"""Handle signals of this process, and start and stop commands of ppocr-ext as child processes."""

from __future__ import annotations

import os
import runpy
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
_LAST_REPEATED = 1.0  # seconds after the first signal; the handlers stay until then


def termination_signals() -> list[signal.Signals]:
    """Return the signals that ask a process to end: SIGTERM, and SIGHUP (terminal closed) unless it is ignored."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # `nohup`
        return [signal.SIGTERM]
    return [signal.SIGTERM, signal.SIGHUP]


@contextmanager
def deferred_signals(on_signal: Callable[[int], None]) -> Iterator[None]:
    """Inside this context, call ``on_signal`` at the first SIGINT, SIGTERM or SIGHUP. A second one acts at once.

    A SIGTERM or SIGHUP within two seconds after another one counts as the same. A SIGHUP that is ignored (``nohup``)
    stays ignored. Only the main thread can receive signals; in other threads this does nothing.
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
                # Without this, a signal would be an error in Paddle's communication with other processes.
                signal.siginterrupt(number, False)
        yield
        # The same signal, sent again, must not end what follows.
        if first is not None and first[0] != signal.SIGINT:
            time.sleep(max(0.0, first[1] + _LAST_REPEATED - time.monotonic()))


_PATIENCE = 120.0  # seconds that a training has for its last step and its checkpoint
# The package may be a clone, so its folder takes the first place of the search path.
_CHILD = "import sys; sys.path[0] = sys.argv.pop(1); from ppocr_ext.loop.signals import run_as_child; run_as_child()"
_PLACE = str(Path(__file__).resolve().parents[2])


def start_child(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``ppocr-ext WORDS`` with its output in ``log``. Ctrl-C does not reach it, so use :func:`stop_child`.

    If this process is killed, the child stops as after SIGTERM, because its standard input ends.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb", opener=own_file) as output:
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD, _PLACE, *words],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run_as_child() -> None:
    """Run the command in ``sys.argv``; stop as after SIGTERM when standard input ends (:func:`stop_child`)."""

    def stop_at_end_of_input() -> None:
        while os.read(0, 1):  # not sys.stdin: forked workers of a loader would inherit its lock
            pass
        os.kill(os.getpid(), signal.SIGTERM)  # to the process: it wakes the main thread, which may sleep

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    runpy.run_module("ppocr_ext", run_name="__main__")


def stop_child(process: subprocess.Popen[bytes]) -> None:
    """Ask ``process`` to stop as after SIGTERM, wait, and kill it if needed; a second Ctrl-C kills at once.

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
    """Return the last error message that a command of ppocr-ext has printed into ``log``; None if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else None
