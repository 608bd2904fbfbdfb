"""Settings that make Paddle's dynamic graph faster on a CPU; the numbers stay the same."""

from __future__ import annotations

import ctypes
import logging
import sys

import paddle

_LOG = logging.getLogger("ppocr_ext")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's mallopt
_KEEP = 2**31 - 1


def tune_cpu() -> None:
    """Set contiguous kernels, and keep freed memory for the next step.

    Since Paddle 3.0 slices, transposes and reshapes are strided views; on a CPU the gradients of such
    views cost more than the copies they save. glibc returns large freed blocks to the system and faults
    every page in again a step later.
    """
    if "FLAGS_use_stride_kernel" in paddle.base.core.globals():  # Paddle 2.6 has no strided views
        paddle.set_flags({"FLAGS_use_stride_kernel": False})
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # not in musl
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, _KEEP)
