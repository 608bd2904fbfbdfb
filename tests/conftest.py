"""Shared by all tests: `from parity import …` works from every test folder."""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "tools"))  # last: its scripts hide nobody's modules

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what exists so far out of each collection of garbage.

    The package collects once for each font that it reads, and all tests of the suite are a million objects.
    """
    gc.freeze()
