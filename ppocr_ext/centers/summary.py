"""What a set of centers says: which characters lack one, and which lie close to each other. Imports no Paddle."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppocr_ext.charset import Charset
from ppocr_ext.data.center_table import CenterTable
from ppocr_ext.data.look_alikes import rivals_of

FEW_FRAMES = 10  # a mean of fewer is not to be relied on
_BLOCK = 512  # centers whose distances to all others are held at a time


@dataclass(frozen=True)
class Pair:
    """Two characters whose centers lie close to each other.

    Attributes:
        first, second: the characters.
        distance: between their centers.
        ratio: the distance in units of the spread of the two (the root of the mean of both): below 2 their
            frames overlap.
    """

    first: str
    second: str
    distance: float
    ratio: float


@dataclass(frozen=True)
class Coverage:
    """How far the centers cover a dictionary.

    Attributes:
        classes: characters of the dictionary, the blank not counted.
        missing: those without a center.
        few: those whose center is of fewer than ``FEW_FRAMES`` frames, with their number.
    """

    classes: int
    missing: tuple[str, ...]
    few: tuple[tuple[str, int], ...]


def coverage(table: CenterTable, charset: Charset) -> Coverage:
    """Which characters of ``charset`` have a center, and of how many frames."""
    counts = dict(zip(table.class_ids.tolist(), table.counts.tolist(), strict=True))
    symbols = list(enumerate(charset.ctc_symbols))[1:]
    return Coverage(
        len(symbols),
        tuple(symbol for c, symbol in symbols if c not in counts),
        tuple((symbol, counts[c]) for c, symbol in symbols if 0 < counts.get(c, 0) < FEW_FRAMES),
    )


def nearest_pairs(table: CenterTable, count: int = 20) -> list[Pair]:
    """The ``count`` pairs of characters with the smallest ratio of distance to spread; the blank is left out."""
    rows = np.flatnonzero(table.class_ids != 0)
    centers, spread = table.centers[rows].astype(np.float64), table.spread[rows]
    norms = np.einsum("kd,kd->k", centers, centers)
    found: list[tuple[float, float, int, int]] = []
    for begin in range(0, len(rows), _BLOCK):
        block = slice(begin, min(begin + _BLOCK, len(rows)))
        squared = norms[block, None] + norms[None] - 2 * centers[block] @ centers.T
        distance = np.sqrt(np.maximum(squared, 0.0))
        width = np.sqrt((spread[block, None] + spread[None]) / 2)
        ratio = distance / np.where(width > 0, width, 1.0)
        ratio[np.arange(len(rows))[None] <= np.arange(begin, block.stop)[:, None]] = np.inf  # each pair once
        best = np.argsort(ratio, axis=None)[:count]
        i, j = np.unravel_index(best, ratio.shape)
        found += [
            (float(ratio[a, b]), float(distance[a, b]), a + begin, b)
            for a, b in zip(i.tolist(), j.tolist(), strict=True)
            if np.isfinite(ratio[a, b])
        ]
    names = [table.characters[row] for row in rows]
    return [Pair(names[a], names[b], d, r) for r, d, a, b in sorted(found)[:count]]


def rival_distance(table: CenterTable, groups: Sequence[str]) -> float | None:
    """Median, over look-alikes, of the squared distance from a center to the nearest of its look-alikes.

    What a center loss's ``margin`` is measured by: with one as great, a frame costs nothing from its own center on.

    Args:
        table: the centers.
        groups: look-alikes, such as ``("未末", "O0o")``.

    Returns:
        None where no two characters of a group have a center.
    """
    place = {character: row for row, character in enumerate(table.characters) if table.class_ids[row] != 0}
    found = []
    for character, rivals in rivals_of(groups).items():
        others = [place[rival] for rival in sorted(rivals) if rival in place]
        if character in place and others:
            own = table.centers[place[character]].astype(np.float64)
            found.append(float(((table.centers[others] - own) ** 2).sum(axis=1).min()))
    return statistics.median(found) if found else None


def to_json(
    table: CenterTable,
    covered: Coverage,
    pairs: Sequence[Pair],
    rivals: float | None,
    accuracy: float,
    lines: int,
) -> str:
    """The summary as JSON, to be written beside the centers."""
    content: dict[str, Any] = {
        "lines": lines,
        "accuracy": round(accuracy, 6),
        "centers": len(table.class_ids),
        "features": table.feat_dim,
        "characters": covered.classes,
        "without_center": list(covered.missing),
        f"fewer_than_{FEW_FRAMES}_frames": dict(covered.few),
        "nearest_pairs": [
            {"pair": [p.first, p.second], "distance": round(p.distance, 6), "in_spreads": round(p.ratio, 4)}
            for p in pairs
        ],
        "squared_distance_of_look_alikes": None if rivals is None else round(rivals, 6),
        "meta": dict(table.meta),
    }
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def to_text(covered: Coverage, pairs: Sequence[Pair], rivals: float | None = None) -> str:
    """The summary for the screen."""
    lines = [f"characters with a center: {covered.classes - len(covered.missing):,} of {covered.classes:,}"]
    if covered.missing:
        lines.append(f"without: {_listed(covered.missing)}")
    if covered.few:
        few = [f"{symbol} ({count})" for symbol, count in covered.few]
        lines.append(f"of fewer than {FEW_FRAMES} frames: {_listed(few)}")
    if pairs:
        lines.append("nearest pairs, by distance in units of their spread (below 2 they overlap):")
        lines += [f"  {p.first} {p.second}  {p.ratio:.2f}" for p in pairs[:10]]
    if rivals is not None:
        lines.append(f"look-alikes: squared distance to the nearest other one {rivals:.4g} (median)")
    return "\n".join(lines)


def _listed(names: Sequence[str], most: int = 30) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return " ".join(names[:most]) + more
