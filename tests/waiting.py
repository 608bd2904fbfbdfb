"""Wait for events. No test depends on how fast a machine is: only a hang takes as long as :data:`HANG`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

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
