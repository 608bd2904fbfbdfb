"""Peaks of this process's resident memory.

On Linux this is the kernel's ``VmHWM``, which begins anew with each program. ``ru_maxrss``, used elsewhere, begins at
the level of the parent process.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

_STATUS, _MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_MARK = "5"  # see proc(5)


def peak_memory() -> int:
    """Return the largest resident memory in bytes since this process or the last :class:`PeakGrowth` began."""
    if _STATUS.is_file():
        return _from_status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class PeakGrowth:
    """How far resident memory grows above its level at the creation of this object.

    First, freed memory is given back to the system, and the kernel's mark is set back to the level. If that is
    impossible (``exact`` is False; outside Linux), the growth is too low if the process had been larger before.
    """

    def __init__(self) -> None:
        gc.collect()
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in musl
            if trim is not None:
                trim(0)
        self.exact = True
        try:
            _MARK.write_text(_RESET_MARK)
        except OSError:  # another system, or a container that forbids it
            self.exact = False
        self._level = _from_status("VmRSS") if self.exact else peak_memory()

    @property
    def bytes(self) -> int:
        """Growth up to now."""
        return max(0, peak_memory() - self._level)


def _from_status(key: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))
