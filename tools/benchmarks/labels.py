"""What the check of label files costs by their length: lines a second on one core, and memory.

The bare system calls on the same images (open, seek, read, close) show how much of the time is the check's own.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.table import circumstances, megabytes, report

IMAGES = 10_000  # different files; the lines of a longer label file name them again
_PICTURES = 16  # different contents of them: PNG and JPEG in turns
_FOLDER = 1000  # images in a folder
_LABEL = 20  # characters of the longest label
FIRST, CHARACTERS = 0x4E00, 6000  # Chinese characters of the dictionary


@dataclass(frozen=True)
class LabelCost:
    """The check of one label file.

    Attributes:
        lines: of the file.
        usable: that the check found usable: all, if it is right.
        seconds: of the fastest round.
        cpu_seconds: of the round that took least: what the machine does besides does not count.
        bare_seconds: CPU time of the bare system calls for as many images.
        growth: bytes of memory that the first check took.
        peak: bytes of the whole process, with Python and all imports.
    """

    lines: int
    usable: int
    seconds: float
    cpu_seconds: float
    bare_seconds: float
    growth: int
    peak: int


@dataclass(frozen=True)
class LabelCosts:
    """What was measured, and the setting in words."""

    setting: str
    costs: Sequence[LabelCost]

    @property
    def agrees(self) -> bool:
        """Whether the check found all lines usable, which they are."""
        return all(each.usable == each.lines for each in self.costs)

    def to_markdown(self) -> str:
        """A row for each label file."""
        head = ["lines", "lines/s", "lines/s of CPU time", "the bare calls", "CPU of the bare calls'"]
        head += ["memory of the check, MB", "of the whole process, MB"]
        rows = [
            [f"{each.lines:,}", f"{each.lines / each.seconds:,.0f}", f"{each.lines / each.cpu_seconds:,.0f}"]
            + [f"{each.lines / each.bare_seconds:,.0f}", f"{each.cpu_seconds / each.bare_seconds:.2f}"]
            + [megabytes(each.growth), megabytes(each.peak)]
            for each in self.costs
        ]
        said = "all lines were found usable" if self.agrees else "USABLE LINES WERE REFUSED"
        return report(self.setting, (head, rows), said)


def measure_labels(lines: Sequence[int], rounds: int = 3) -> LabelCosts:
    """Check drawn label files, each in a process of its own that keeps to one core.

    Args:
        lines: of each label file.
        rounds: checks of a file; the fastest counts.

    Raises:
        PPOCRExtError: a process failed.
    """
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        drawn = draw_lines(Path(folder), min(IMAGES, max(lines)))
        costs = []
        for count in lines:
            write_repeated(Path(folder) / "list.txt", drawn, count)
            found = in_fresh_process("benchmarks.labels_worker", {"folder": folder, "rounds": rounds})
            costs.append(LabelCost(count, **found))
    setting = f"{min(IMAGES, max(lines)):,} images, {rounds} rounds, {circumstances(before)}"
    return LabelCosts(setting, costs)


def draw_lines(folder: Path, count: int) -> list[bytes]:
    """Write ``count`` images into folders of ``folder``, and return a line of a label file for each."""
    draw, noise = random.Random(0), np.random.default_rng(0)
    pictures = []
    for number in range(_PICTURES):
        pixels = noise.integers(0, 256, (32, 100, 3), np.uint8)
        pictures.append(bytes(cv2.imencode((".png", ".jpg")[number % 2], pixels)[1]))
    characters = [chr(FIRST + number) for number in range(CHARACTERS)]
    lines = []
    for number in range(count):
        path = Path(f"{number // _FOLDER:04d}", f"word_{number:07d}{('.png', '.jpg')[number % 2]}")
        (folder / path.parent).mkdir(exist_ok=True)
        (folder / path).write_bytes(pictures[number % _PICTURES])
        label = "".join(draw.choices(characters, k=draw.randint(1, _LABEL)))
        lines.append(f"{path.as_posix()}\t{label}\n".encode())
    return lines


def write_repeated(file: Path, lines: Sequence[bytes], count: int) -> None:
    """Write ``count`` lines: those of ``lines``, again and again."""
    whole, rest = divmod(count, len(lines))
    block = b"".join(lines)
    with file.open("wb") as stream:
        for _ in range(whole):
            stream.write(block)
        stream.write(b"".join(lines[:rest]))
