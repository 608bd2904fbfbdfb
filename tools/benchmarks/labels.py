"""What the label check costs by the length of a label file: lines a second on one core, and memory.

The bare system calls on the same images (open, seek, read, close) show how much of the time is the check's own.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.memory import PeakGrowth, peak_memory
from benchmarks.table import circumstances, megabytes, report
from ppocr_ext.charset import Charset
from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import FrameLimit, SampleRules

IMAGES = 10_000  # files; a longer label file names them again
_PICTURES = 16  # different contents of the files: PNG and JPEG in turns
_FOLDER = 1000  # images in a folder
_LABEL = 20  # characters of the longest label
CHARACTERS = tuple(chr(0x4E00 + number) for number in range(6000))  # Chinese


@dataclass(frozen=True)
class LabelCost:
    """The check of one label file."""

    lines: int
    usable: int  # lines that the check accepts: all, if it is right
    seconds: float  # of the fastest round
    cpu_seconds: float  # of the round with the least CPU time
    bare_seconds: float  # CPU time of the bare system calls for as many images
    growth: int  # bytes of memory that the first check took
    peak: int  # bytes of the whole process, with Python and all imports


@dataclass(frozen=True)
class LabelCosts:
    """The setting in words, and the check of each label file."""

    setting: str
    costs: Sequence[LabelCost]

    @property
    def agrees(self) -> bool:
        """True if the check accepted all lines: all are usable."""
        return all(each.usable == each.lines for each in self.costs)

    def to_markdown(self) -> str:
        """Return a row for each label file."""
        head = ["lines", "lines/s", "lines/s of CPU time", "the bare calls", "CPU of the bare calls'"]
        head += ["memory of the check, MB", "of the whole process, MB"]
        rows = [
            [f"{each.lines:,}", f"{each.lines / each.seconds:,.0f}", f"{each.lines / each.cpu_seconds:,.0f}"]
            + [f"{each.lines / each.bare_seconds:,.0f}", f"{each.cpu_seconds / each.bare_seconds:.2f}"]
            + [megabytes(each.growth), megabytes(each.peak)]
            for each in self.costs
        ]
        result = "all lines were accepted" if self.agrees else "USABLE LINES WERE REFUSED"
        return report(self.setting, (head, rows), result)


def measure_labels(lines: Sequence[int], rounds: int = 3) -> LabelCosts:
    """Check drawn label files of so many lines, each in a new process on one core; the fastest round counts."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        samples = draw_lines(Path(folder), min(IMAGES, max(lines)))
        costs = []
        for count in lines:
            write_repeated(Path(folder) / "list.txt", samples, count)
            work = {"folder": folder, "rounds": rounds}
            answer = in_fresh_process("benchmarks.labels:check_repeatedly", work)
            costs.append(LabelCost(count, **answer))
    setting = f"{min(IMAGES, max(lines)):,} images, {rounds} rounds, {circumstances(before)}"
    return LabelCosts(setting, costs)


def draw_lines(folder: Path, count: int) -> list[bytes]:
    """Write ``count`` images into folders of ``folder``, and return a line of a label file for each."""
    draw, noise = random.Random(0), np.random.default_rng(0)
    pictures = []
    for number in range(_PICTURES):
        pixels = noise.integers(0, 256, (32, 100, 3), np.uint8)
        pictures.append(bytes(cv2.imencode((".png", ".jpg")[number % 2], pixels)[1]))
    lines = []
    for number in range(count):
        path = Path(f"{number // _FOLDER:04d}", f"word_{number:07d}{('.png', '.jpg')[number % 2]}")
        (folder / path.parent).mkdir(exist_ok=True)
        (folder / path).write_bytes(pictures[number % _PICTURES])
        label = "".join(draw.choices(CHARACTERS, k=draw.randint(1, _LABEL)))
        lines.append(f"{path.as_posix()}\t{label}\n".encode())
    return lines


def write_repeated(file: Path, lines: Sequence[bytes], count: int) -> None:
    """Write ``count`` lines: ``lines`` again and again."""
    with file.open("wb") as stream:
        stream.writelines(islice(cycle(lines), count))


def check_repeatedly(folder: str, rounds: int) -> dict[str, Any]:
    """Check ``list.txt`` of ``folder`` by the rules of a training with NRTR and 40 frames.

    Returns:
        The values of :class:`LabelCost`, without ``lines``.
    """
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    charset = Charset(CHARACTERS)
    rules = SampleRules(charset, 25, "nrtr", FrameLimit(40), allow_outside_data_dir=False)
    file, growth = Path(folder) / "list.txt", PeakGrowth()
    reports = []
    times = [_timed(lambda: reports.append(check_label_files(file, folder, rules)))]
    memory = {"growth": growth.bytes, "peak": peak_memory()}
    times += [_timed(lambda: check_label_files(file, folder, rules)) for _ in range(rounds - 1)]
    images = [f"{folder}/{line.images[0]}" for line in islice(read_label_file(file), IMAGES)]
    bare = min(_timed(lambda: _touch(images))[1] for _ in range(rounds))
    return {
        "usable": reports[0].usable,
        "seconds": min(wall for wall, _ in times),
        "cpu_seconds": min(cpu for _, cpu in times),
        "bare_seconds": bare / len(images) * reports[0].total,
        **memory,
    }


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _touch(paths: list[str]) -> None:
    """Make the system calls that any look at an image needs."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        os.lseek(handle, 0, os.SEEK_END)
        os.pread(handle, 1 << 14, 0)
        os.close(handle)
