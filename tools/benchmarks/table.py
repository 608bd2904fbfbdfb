"""Figures of a benchmark as a Markdown table."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are written already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def megabytes(count: float) -> str:
    """Bytes in units of 10^6 bytes."""
    return f"{count / 1e6:,.1f}"


def threads() -> str:
    """Threads of a process's arithmetic, as Paddle takes them when it is imported."""
    return f"{os.environ.get('OMP_NUM_THREADS', '1')} threads"


def processor() -> str:
    """The processor's name and how many cores this process sees."""
    file = Path("/proc/cpuinfo")  # where `platform` has no name
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or machine()}, {os.cpu_count()} cores"


def machine() -> str:
    """The processor's architecture."""
    return platform.machine()
