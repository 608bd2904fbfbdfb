"""Peaks of this process's resident memory.

On Linux this is the kernel's ``VmHWM``, which begins anew with each program. ``ru_maxrss``, used elsewhere, begins at
the level of the parent process.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
from pathlib import Path

from ppocr_ext.errors import PPOCRExtError

_STATUS, _MARK = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_MARK = "5"  # see proc(5)


def peak_memory() -> int:
    """Return the largest resident memory in bytes since this process or the last :class:`PeakGrowth` began."""
    return _from_status("VmHWM") if _STATUS.is_file() else _ru_maxrss()


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
        self.exact = _set_back()
        self._level = _from_status("VmRSS") if self.exact else peak_memory()

    @property
    def bytes(self) -> int:
        """Growth up to now."""
        return max(0, peak_memory() - self._level)


def _set_back() -> bool:
    try:
        _MARK.write_text(_RESET_MARK)
    except OSError:  # another system, or a container that forbids it
        return False
    return True


def _from_status(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise PPOCRExtError(
        f"{_STATUS} has no {key}, so that memory cannot be measured here.", code="no_memory_figures"
    )


def _ru_maxrss() -> int:
    try:
        resource = importlib.import_module("resource")
    except ModuleNotFoundError as missing:
        raise PPOCRExtError(
            "Peak memory can be measured on Linux and macOS only.", code="no_memory_figures"
        ) from missing
    peak = int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else peak * 1024
