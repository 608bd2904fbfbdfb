"""Speed and memory of the check of label files by their length, as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.labels import LabelCosts

_COLORS = ("#0072b2", "#e69f00")  # told apart by the color-blind too


def draw(costs: LabelCosts, file: Path) -> None:
    """Draw both curves.

    Args:
        costs: what was measured.
        file: PNG or SVG, by its ending.
    """
    lines = [each.lines for each in costs.costs]
    figure, (speed, memory) = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
    speeds = [each.lines / each.cpu_seconds for each in costs.costs]
    bare = [each.lines / each.bare_seconds for each in costs.costs]
    speed.plot(lines, speeds, "o-", color=_COLORS[0], label="the check")
    speed.plot(lines, bare, "s--", color=_COLORS[1], label="the bare calls")
    speed.set_ylabel("lines per second of CPU time")
    memory.plot(lines, [each.growth / 1e6 for each in costs.costs], "o-", color=_COLORS[0], label="the check")
    memory.plot(
        lines, [each.peak / 1e6 for each in costs.costs], "s--", color=_COLORS[1], label="the process"
    )
    memory.set_ylabel("memory, MB")
    for panel in (speed, memory):
        panel.set_xscale("log")
        panel.set_xlabel("lines of the label file")
        panel.set_ylim(0, None)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False)
    figure.savefig(file, dpi=110)
    plt.close(figure)
