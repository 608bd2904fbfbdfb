"""Run a command of ppocr-ext as a process that does not outlive this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ppocr_ext.io.atomic import own_file

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
