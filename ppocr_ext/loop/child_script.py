"""Run a command of ppocr-ext that stops as by SIGTERM when its standard input ends.

See child.py, which stops such a process by closing its end of the pipe. The system closes that end when the process of
child.py is killed.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from pathlib import Path


def _stop_at_the_end_of_input() -> None:
    while os.read(0, 1):  # not sys.stdin: its lock would be held in the forked workers of a loader
        pass
    # to the process, not to this thread: it wakes the main thread, which may sleep
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.path[0] = str(
        Path(__file__).resolve().parents[2]
    )  # in place of this folder: the package, also of a clone
    threading.Thread(target=_stop_at_the_end_of_input, daemon=True).start()
    runpy.run_module("ppocr_ext", run_name="__main__")  # the command itself, which the user can repeat
