"""Images a second of each network and engine, as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.infer import BARE, READ, InferCosts

_COLORS = ("#0072b2", "#e69f00", "#999999")  # told apart by the color-blind too
_BAR = 0.27  # height; a network has a row of height 1


def draw(costs: InferCosts, file: Path) -> None:
    """Draw a panel for each number of threads and each batch.

    Args:
        costs: what was measured.
        file: PNG or SVG, by its ending.
    """
    threads, batches, engines = (costs.values(name) for name in ("threads", "batch", "engine"))
    networks = [name for name in costs.values("what") if name not in (BARE, READ)]
    size = (5.5 * len(batches) + 1.5, (0.75 * len(networks) + 0.9) * len(threads))
    figure, panels = plt.subplots(
        len(threads), len(batches), figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    for row, count in zip(panels, threads, strict=True):
        for panel, batch in zip(row, batches, strict=True):
            for number, engine in enumerate(engines):
                speeds = [costs.find(count, batch, name, engine).best for name in networks]
                places = [place + (number - (len(engines) - 1) / 2) * _BAR for place in range(len(networks))]
                bars = panel.barh(places, speeds, _BAR, label=engine, color=_COLORS[number])
                panel.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
            panel.set_yticks(range(len(networks)), [name.replace(", ", ",\n") for name in networks])
            panel.set_title(f"batch {batch}, {count} thread{'s' if count > 1 else ''}", fontsize=10)
            panel.margins(x=0.15)
            panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].invert_yaxis()
    for panel in panels[-1]:
        panel.set_xlabel("images/s")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(engines), frameon=False)
    figure.savefig(file, dpi=110)
    plt.close(figure)
