"""The check of one label file, timed and weighed in a process of its own; see :mod:`benchmarks.labels`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.labels import CHARACTERS, FIRST, IMAGES
from benchmarks.memory import PeakGrowth, peak_memory
from ppocr_ext.charset import Charset
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import FrameLimit, SampleRules


def measure(folder: str, rounds: int) -> dict[str, Any]:
    """Check ``list.txt`` of ``folder`` ``rounds`` times by the rules of a training with NRTR and 40 frames.

    Returns:
        The values of :class:`benchmarks.labels.LabelCost`, all but ``lines``.
    """
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    charset = Charset(tuple(chr(FIRST + number) for number in range(CHARACTERS)))
    rules = SampleRules(charset, 25, "nrtr", FrameLimit(40), allow_outside_data_dir=False)
    file, growth = Path(folder) / "list.txt", PeakGrowth()
    reports = []
    times = [_timed(lambda: reports.append(check_label_files(file, folder, rules)))]
    found: dict[str, Any] = {"usable": reports[0].usable, "growth": growth.bytes, "peak": peak_memory()}
    times += [_timed(lambda: check_label_files(file, folder, rules)) for _ in range(rounds - 1)]
    images = [f"{folder}/{line.images[0]}" for line in islice(read_label_file(file), IMAGES)]
    bare = min(_timed(lambda: _touch(images))[1] for _ in range(rounds))
    found |= {"seconds": min(wall for wall, _ in times), "cpu_seconds": min(cpu for _, cpu in times)}
    return {**found, "bare_seconds": bare / len(images) * reports[0].total}


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _touch(paths: list[str]) -> None:
    """Make the system calls without which no image can be looked at."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        os.lseek(handle, 0, os.SEEK_END)
        os.pread(handle, 1 << 14, 0)
        os.close(handle)
