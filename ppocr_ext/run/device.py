"""The device that a config asks for, by PaddleOCR's keys (``use_gpu``, ``use_xpu``, …)."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import partial
from pathlib import Path

import paddle
import paddle.distributed as dist

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError

_CPU_INFO = Path("/proc/cpuinfo")
# of glibc's mallopt
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_KEEP = 2**31 - 1
_INSTALL = {"gpu": " (`pip install 'ppocr-ext[gpu]'` for NVIDIA)"}


def choose_device(config: Config) -> str:
    """Set and return Paddle's device: ``"cpu"``, ``"gpu:0"``, …

    Raises:
        ConfigError: the installed Paddle cannot use the device asked for.
    """
    kind = device_kind(config)
    if kind == "cpu":
        tune_cpu()
    device = kind if kind == "cpu" else f"{kind}:{dist.ParallelEnv().dev_id}"
    return str(paddle.set_device(device) and device)


def device_kind(config: Config) -> str:
    """Return what the config asks for: ``"cpu"``, ``"gpu"``, …; nothing is set.

    Raises:
        ConfigError: the installed Paddle cannot use the device asked for.
    """
    wanted = config.asked_devices()
    if not wanted:
        return "cpu"
    if len(wanted) > 1:
        keys = ", ".join(f"Global.use_{kind}" for kind in wanted)
        raise ConfigError(f"{keys} are all true. Leave one of them.", code="conflicting_keys")
    kind = wanted[0]
    key = f"{config.where(f'Global.use_{kind}')}: Global.use_{kind}"
    built_for = {"gpu": paddle.is_compiled_with_cuda, "xpu": paddle.device.is_compiled_with_xpu}
    if not built_for.get(kind, partial(paddle.device.is_compiled_with_custom_device, kind))():
        raise ConfigError(
            f"{key} is true, but this Paddle ({paddle.__version__}) is not built for {kind.upper()}. "
            f"Install the build for it{_INSTALL.get(kind, '')}, or set -o Global.use_{kind}=false.",
            code="unsupported_device",
        )
    if kind == "gpu" and paddle.device.cuda.device_count() == 0:
        raise ConfigError(
            f"{key} is true, but no GPU is visible. Set -o Global.use_gpu=false for the CPU.", code="no_gpu"
        )
    return kind


def tune_cpu() -> None:
    """Set contiguous kernels and AMD's vector instructions, and keep freed memory for the next step.

    Since Paddle 3.0 slices, transposes and reshapes are strided views; on a CPU the gradients of such
    views cost more than the copies they save. The MKL in Paddle's wheel uses AVX2 on a processor of AMD only if
    ``MKL_DEBUG_CPU_TYPE`` is 5 before its first product; a value that the user has set stays. glibc returns large
    freed blocks to the system and faults every page in again a step later.
    """
    if "FLAGS_use_stride_kernel" in paddle.base.core.globals():  # Paddle 2.6 has no strided views
        paddle.set_flags({"FLAGS_use_stride_kernel": False})
    if sys.platform != "linux":
        return
    if is_amd_with_avx2(_CPU_INFO.read_text(encoding="utf-8", errors="replace")):
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # not in musl
        library.mallopt(_M_MMAP_MAX, 0)
        library.mallopt(_M_TRIM_THRESHOLD, _KEEP)


def is_amd_with_avx2(cpu_info: str) -> bool:
    """Return whether the text of ``/proc/cpuinfo`` describes a processor of AMD that has AVX2."""
    return "AuthenticAMD" in cpu_info and "avx2" in cpu_info.split()
