"""Figures of a benchmark as a Markdown table."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SECTIONS = ("step", "eval", "center", "memory", "data")  # of `benchmark.py all`


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of some figures."""

    median: float
    least: float
    most: float

    @classmethod
    def of_ratios(cls, over: Sequence[float], under: Sequence[float]) -> Spread:
        """Return the ratios of two figures of each round: other work of the machine slows both."""
        ratios = [one / other for one, other in zip(over, under, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}–{self.most:.2f})"


@dataclass(frozen=True)
class Turns:
    """Seconds of each round by the kind of work, with a head for the names and the kind to compare with (``base``)."""

    setting: str
    seconds: Mapping[str, Sequence[float]]
    what: str
    base: str
    agrees: bool = True  # there is nothing to compare

    def to_markdown(self) -> str:
        """Return a table with ratios to the kind ``base``."""
        rows = [
            [name, f"{statistics.median(times):.3f}", f"{min(times):.3f}"]
            + [f"{Spread.of_ratios(times, self.seconds[self.base])}"]
            for name, times in self.seconds.items()
        ]
        head = [self.what, "seconds (median)", "seconds (best)", f"ratio to {self.base} (of rounds)"]
        return report(self.setting, (head, rows))


Times = Sequence[Sequence[float]]  # of each round its seconds, and the processor's


def medians(times: Times) -> tuple[float, float]:
    """Return the median of the seconds, and of the processor's."""
    wall, processor = map(statistics.median, zip(*times, strict=True))
    return wall, processor


def ratios(over: Times, under: Times, clock: int = 1) -> Spread:
    """Return the ratios of two kinds in the same round: of the processor's seconds, or of wall time (``clock`` 0)."""
    return Spread.of_ratios([each[clock] for each in over], [each[clock] for each in under])


Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # head and rows of cells


def report(*parts: str | Table) -> str:
    """Return paragraphs and tables as Markdown; empty paragraphs are left out."""
    return "\n\n".join(part if isinstance(part, str) else markdown(*part) for part in parts if part)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mean(values: Sequence[float], digits: int) -> str:
    """Return the mean, with the standard deviation if there are several values."""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def verdict(agrees: bool) -> str:
    """Return the word for compared results."""
    return "agree" if agrees else "DISAGREE"


def megabytes(count: float) -> str:
    """Return bytes in units of 10^6 bytes."""
    return f"{count / 1e6:,.1f}"


def threads() -> str:
    """Return the threads that Paddle takes when it is imported."""
    return f"{os.environ.get('OMP_NUM_THREADS', '1')} threads"


def processor() -> str:
    """Return the processor's name and the number of cores."""
    file = Path("/proc/cpuinfo")  # `platform` often has no name
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def circumstances(before: float) -> str:
    """Return the processor, the date, and the machine's load before (``os.getloadavg()[0]``) and now."""
    now, load = datetime.datetime.now(datetime.UTC), os.getloadavg()[0]
    return f"{processor()}, {now:%Y-%m-%d}, load of the machine {before:.1f} before and {load:.1f} after"
