"""A map of character centers: near on the map, near for the recogniser. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from ppocr_ext.centers.summary import Pair
from ppocr_ext.data.center_table import CenterTable

_PLACEHOLDERS = "Last Resort"  # matplotlib's font with a box for every code point there is
_MOST = 400  # characters that are written out; of more, those of the pairs come first


def project(centers: np.ndarray) -> np.ndarray:
    """Two axes with the most variance (principal components), [K, D] to [K, 2]."""
    offset = centers.astype(np.float64) - centers.mean(axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(offset, full_matrices=False)
    flat = np.zeros([len(centers), 2])
    flat[:, : len(axes[:2])] = offset @ axes[:2].T
    return flat


def draw_center_map(path: Path, table: CenterTable, pairs: Sequence[Pair], title: str) -> None:
    """Draw the centers of characters in two dimensions, near pairs joined by a line.

    Args:
        path: the PNG to write.
        table: the centers; the blank is left out.
        pairs: those that are joined, as :func:`ppocr_ext.centers.summary.nearest_pairs` gives them.
        title: over the map.
    """
    rows = np.flatnonzero(table.class_ids != 0)
    names = [table.characters[row] for row in rows]
    flat = project(table.centers[rows]) if len(rows) else np.zeros([0, 2])
    place = dict(zip(names, flat, strict=True))
    figure = Figure(figsize=(9, 9), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    pairs = pairs[: max(3, len(rows) // 2)]  # of a few characters every pair is near
    for pair in pairs:
        ends = np.stack([place[pair.first], place[pair.second]])
        axes.plot(ends[:, 0], ends[:, 1], color="#d55e00", linewidth=1, alpha=0.6, zorder=1)
    in_pairs = {name for pair in pairs for name in (pair.first, pair.second)}
    shown = [*in_pairs, *(name for name in names if name not in in_pairs)][:_MOST]
    unnamed = [row for row, name in enumerate(names) if name not in set(shown)]
    axes.scatter(flat[unnamed, 0], flat[unnamed, 1], s=6, color="#9aa5b1", zorder=2)
    font = font_for(shown)
    for name in shown:
        label = name if font is not None or name.isascii() else f"{ord(name[0]):04X}"
        axes.annotate(
            label,
            place[name],
            fontproperties=font,
            fontsize=12 if len(shown) <= 120 else 8,
            color="#b23c00" if name in in_pairs else "#1f2933",
            ha="center",
            va="center",
            zorder=3,
            path_effects=[Stroke(linewidth=3, foreground="white"), Normal()],
        )
    axes.set_title(title, loc="left")
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second principal component")
    axes.margins(0.06)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def font_for(characters: Sequence[str]) -> font_manager.FontProperties | None:
    """An installed font that draws all ``characters``; matplotlib's own where that does; None where none does."""
    wanted = {ord(c) for name in characters for c in name if not c.isspace()}
    own = font_manager.FontProperties(family="DejaVu Sans")
    if wanted <= _drawn_by(font_manager.findfont(own)):
        return own
    candidates = [
        entry.fname
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and not entry.name.startswith(_PLACEHOLDERS)
    ]
    for file in dict.fromkeys([*candidates, *_of_packages()]):
        if wanted <= _drawn_by(file):
            return font_manager.FontProperties(fname=file)
    return None


def _drawn_by(file: str) -> set[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return set(FT2Font(file).get_charmap())
    except (OSError, RuntimeError):  # a font that FreeType cannot open draws nothing
        return set()


def _of_packages() -> list[str]:
    """Fonts that the package mplfonts brings, where it is installed."""
    import importlib.util

    found = importlib.util.find_spec("mplfonts")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    return [str(file) for folder in folders for file in sorted(Path(folder).rglob("*.[ot]tf"))]
