"""Draw a map of character centers, on which characters are near that the recogniser confuses. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.patheffects import Normal, Stroke

from ppocr_ext.centers.center_summary import CenterPair
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.characters.look_alikes import code_points, is_invisible
from ppocr_ext.io.resources import package_folder

# Fonts of matplotlib that are not for text: they draw boxes, or formulas with their own codes.
_NO_TEXT = ("Last Resort", "cmb", "cmex", "cmmi", "cmr", "cmss", "cmsy", "cmtt", "STIXNonUnicode", "STIXSize")
_MAX_LABELS = 400  # characters that are drawn as text; those of the pairs come first


def project(centers: np.ndarray) -> np.ndarray:
    """Project [K, D] to [K, 2], on the two axes with the largest variance (principal components)."""
    offset = centers.astype(np.float64) - centers.mean(axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(offset, full_matrices=False)
    flat = np.zeros([len(centers), 2])
    flat[:, : len(axes[:2])] = offset @ axes[:2].T
    return flat


def draw_center_map(path: Path, table: CenterTable, pairs: Sequence[CenterPair], title: str) -> None:
    """Draw the centers of characters in two dimensions, near pairs joined by a line.

    Args:
        path: the PNG to write.
        table: the centers; the blank is not drawn.
        pairs: pairs to join, from :func:`ppocr_ext.centers.center_summary.nearest_pairs`.
        title: the title of the map.
    """
    rows = np.flatnonzero(table.class_ids != 0)
    names = [table.characters[row] for row in rows]
    flat = project(table.centers[rows]) if len(rows) else np.zeros([0, 2])
    place = dict(zip(names, flat, strict=True))
    figure = Figure(figsize=(9, 9), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    pairs = pairs[: max(3, len(rows) // 2)]  # with few characters, every pair is near
    for pair in pairs:
        ends = np.stack([place[pair.first], place[pair.second]])
        axes.plot(ends[:, 0], ends[:, 1], color="#d55e00", linewidth=1, alpha=0.6, zorder=1)
    in_pairs = dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second))
    labelled = [*in_pairs, *(name for name in names if name not in in_pairs)][:_MAX_LABELS]
    labels = {name: code_points(name) if any(map(is_invisible, name)) else name for name in labelled}
    unnamed = [row for row, name in enumerate(names) if name not in labels]
    axes.scatter(flat[unnamed, 0], flat[unnamed, 1], s=6, color="#9aa5b1", zorder=2)
    axes.update_datalim(flat)  # annotations do not extend the axes, and outside them they are not drawn
    fonts = fonts_for(list(labels.values()))
    for name, label in labels.items():
        axes.annotate(
            label if label in fonts else code_points(name),
            place[name],
            parse_math=False,
            fontproperties=fonts.get(label),
            fontsize=12 if len(labelled) <= 120 else 8,
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


def fonts_for(labels: Sequence[str]) -> Mapping[str, font_manager.FontProperties]:
    """Return a font for each label; labels that no installed font draws are missing.

    The font that draws the most labels is chosen first, then the best one for the other labels, and so on.
    """
    points_of = {label: {ord(c) for c in label if not c.isspace()} for label in dict.fromkeys(labels)}
    able: dict[str, list[str]] = {}
    for file in _font_files():
        drawn = _drawn_by(file)
        able[file] = [label for label, points in points_of.items() if points <= drawn]
        if len(able[file]) == len(points_of):  # no other font can draw more
            break
    fonts: dict[str, font_manager.FontProperties] = {}
    while able:
        best = max(able, key=lambda file: len(able[file]))  # max takes the first of equal fonts
        font = font_manager.FontProperties(fname=best)
        fonts |= dict.fromkeys(able.pop(best), font)
        able = {file: rest for file, found in able.items() if (rest := [n for n in found if n not in fonts])}
    return fonts


def _font_files() -> list[str]:
    """Return the files of fonts for text: matplotlib's, installed ones (regular weights first), those of mplfonts."""
    upright = [
        entry
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal" and not entry.name.startswith(_NO_TEXT)
    ]
    upright.sort(key=lambda entry: entry.weight not in (400, "normal", "regular", "book"))
    own = font_manager.findfont(font_manager.FontProperties(family="DejaVu Sans"))
    folder = package_folder("mplfonts")
    added = [] if folder is None else [str(file) for file in sorted(folder.rglob("*.[ot]tf"))]
    return list(dict.fromkeys([own, *(entry.fname for entry in upright), *added]))


def _drawn_by(file: str) -> set[int]:
    try:
        return set(FT2Font(file).get_charmap())
    except (OSError, RuntimeError):  # a font that FreeType cannot open draws nothing
        return set()
