"""Figures of a benchmark as a Markdown table."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence


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


def machine() -> str:
    """The processor's architecture."""
    return platform.machine()
