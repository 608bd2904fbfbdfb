"""Start processes and wait for events.

No test depends on how fast a machine is: only a hang takes as long as :data:`HANG`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

HANG = 900  # seconds
TICK = 0.05


def wait_for(event: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until ``event`` returns something true; fail if ``process`` ends before."""
    until = time.monotonic() + HANG
    while not event():
        ended = process is not None and process.poll() is not None
        assert not ended or event(), f"the process has ended with {process and process.returncode}"
        assert time.monotonic() < until, f"nothing has happened in {HANG} s"
        time.sleep(TICK)


def launch_two(folder: Path, *words: object, **variables: str) -> subprocess.Popen[str]:
    """Start two processes of a script in ``folder``, through Paddle's launcher."""
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", "log"]
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [*command, *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], code: int | None = None) -> str:
    """Wait for the end of a process, and check its exit code; return what it has printed."""
    try:
        said, _ = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        process.terminate()
        said, _ = process.communicate()
        pytest.fail(f"still running after {HANG} s:\n{said}")
    assert code is None or process.returncode == code, said
    return str(said)
