"""What a set of centers says: which characters lack one, and which lie close to each other. Imports no Paddle."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.characters.look_alikes import rivals_of
from ppocr_ext.characters.symbol_names import name_of
from ppocr_ext.charset import Charset
from ppocr_ext.messages import shortened

_LISTED = 30  # characters that a line names
FEW_FRAMES = 10  # a mean of fewer is not to be relied on
_BLOCK = 512  # centers whose distances to all others are held at a time


@dataclass(frozen=True)
class Pair:
    """Two characters whose centers lie close to each other.

    Attributes:
        first, second: the characters.
        distance: between their centers.
        ratio: the distance in units of the spread of the two (the root of the mean of both): below 2 their
            frames overlap. A character of fewer than ``FEW_FRAMES`` frames counts with the spread of the others.
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
    """The ``count`` pairs of characters with the smallest ratio of distance to spread; the blank is left out.

    Returns:
        The nearest first; none where no character has two frames that differ, so that no spread is known.
    """
    rows = np.flatnonzero(table.class_ids != 0)
    spread = _spread(table.counts[rows], table.spread[rows])
    if spread is None or len(rows) < 2:
        return []
    centers = table.centers[rows].astype(np.float64)
    found = []
    for i, j in _near(centers, spread, 2 * count):
        distance = float(np.linalg.norm(centers[i] - centers[j]))
        found.append((distance / math.sqrt((spread[i] + spread[j]) / 2), distance, i, j))
    names = [table.characters[row] for row in rows]
    return [Pair(names[a], names[b], d, r) for r, d, a, b in sorted(found)[:count]]


def _spread(counts: np.ndarray, spread: np.ndarray) -> np.ndarray | None:
    """float64 [K], all above 0: of few frames, or where all frames are equal, what is usual; None if none is known."""
    known = (counts >= FEW_FRAMES) & (spread > 0)
    if known.any():
        usual = float(np.median(spread[known]))
    else:  # around a mean of n frames they lie nearer than around the true center, by (n - 1) / n
        usual = float((counts * spread).sum() / max(1, np.maximum(counts - 1, 0).sum()))
    return np.where(known, spread, usual) if usual > 0 else None


def _near(centers: np.ndarray, spread: np.ndarray, count: int) -> Iterator[tuple[int, int]]:
    """Rows i < j of about the ``count`` pairs of smallest ratio, as float32 tells them."""
    moved = (centers - centers.mean(axis=0)).astype(np.float32)  # near 0, where float32 is exact enough
    norms, width = np.einsum("kd,kd->k", moved, moved), spread.astype(np.float32)
    best = np.zeros([0, 3])  # squared ratio, i, j
    for begin in range(0, len(moved), _BLOCK):
        end = min(begin + _BLOCK, len(moved))
        squared = moved[begin:end] @ moved[begin:].T
        squared *= -2
        squared += norms[begin:end, None]
        squared += norms[begin:]
        squared /= width[begin:end, None] + width[begin:]
        squared[:, : end - begin][np.tril_indices(end - begin)] = np.inf  # each pair once
        limit = best[-1, 0] if len(best) == count else np.inf
        places = np.flatnonzero(squared < limit)
        if len(places) > count:
            values = squared.reshape(-1)[places]
            places = places[np.argpartition(values, count)[:count]]
        i, j = np.divmod(places, len(moved) - begin)
        rows = np.stack([squared.reshape(-1)[places], i + begin, j + begin], axis=1)
        best = np.concatenate([best, rows])
        best = best[np.argsort(best[:, 0], kind="stable")[:count]]
    yield from ((int(i), int(j)) for _, i, j in best)


def rival_distance(table: CenterTable, groups: Sequence[str]) -> float | None:
    """Median, over look-alikes, of the squared distance from a center to the nearest of its look-alikes.

    What a center loss's ``margin`` is measured by: with one as great, a frame costs nothing from its own center on.

    Args:
        table: the centers.
        groups: look-alikes, such as ``("未末", "O0o")``.

    Returns:
        None where no two characters of a group have a center.
    """
    found = [squared for _, _, squared in _nearest_rivals(table, groups)]
    return statistics.median(found) if found else None


def rival_separations(table: CenterTable, groups: Sequence[str]) -> dict[str, float]:
    """Of each look-alike, the distance from its center to the nearest one of its look-alikes, in spreads.

    A spread is the root of the mean of both characters' spreads, as in :class:`Pair`: below 2 their frames overlap.
    Unlike :func:`rival_distance` it does not change with the scale of the features, so that models can be compared.

    Args:
        table: the centers.
        groups: look-alikes, such as ``("未末", "O0o")``.

    Returns:
        Those that have a center, as have one of their look-alikes; empty where no spread is known.
    """
    rows = np.flatnonzero(table.class_ids != 0)
    known = _spread(table.counts[rows], table.spread[rows])
    if known is None:
        return {}
    spread = dict(zip(rows.tolist(), known.tolist(), strict=True))
    return {
        table.characters[own]: math.sqrt(squared / ((spread[own] + spread[other]) / 2))
        for own, other, squared in _nearest_rivals(table, groups)
    }


def _nearest_rivals(table: CenterTable, groups: Sequence[str]) -> Iterator[tuple[int, int, float]]:
    """(row, row of its nearest look-alike, squared distance) of each look-alike that has a center and one to shun."""
    place = {character: row for row, character in enumerate(table.characters) if table.class_ids[row] != 0}
    for character, rivals in rivals_of(groups).items():
        others = [place[rival] for rival in sorted(rivals) if rival in place]
        if character in place and others:
            own = table.centers[place[character]].astype(np.float64)
            squared = ((table.centers[others] - own) ** 2).sum(axis=1)
            nearest = int(squared.argmin())
            yield place[character], others[nearest], float(squared[nearest])


def to_json(
    table: CenterTable,
    covered: Coverage,
    pairs: Sequence[Pair],
    rivals: float | None,
    separations: Mapping[str, float],
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
        "look_alikes_in_spreads": {
            character: round(separations[character], 4)
            for character in sorted(separations, key=lambda character: separations[character])
        },
        "meta": dict(table.meta),
    }
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def to_text(
    covered: Coverage,
    pairs: Sequence[Pair],
    rivals: float | None = None,
    separations: Mapping[str, float] | None = None,
) -> str:
    """The summary for the screen."""
    lines = [f"characters with a center: {covered.classes - len(covered.missing):,} of {covered.classes:,}"]
    if covered.missing:
        missing = shortened([name_of(symbol) for symbol in covered.missing], _LISTED, " ")
        lines.append(f"without: {missing}")
    if covered.few:
        few = [f"{name_of(symbol)} ({count})" for symbol, count in covered.few]
        lines.append(f"of fewer than {FEW_FRAMES} frames: {shortened(few, _LISTED, ' ')}")
    if pairs:
        lines.append("nearest pairs, by distance in units of their spread (below 2 they overlap):")
        lines += [f"  {name_of(p.first)} {name_of(p.second)}  {p.ratio:.2f}" for p in pairs[:10]]
    if rivals is not None:
        spreads = f", {statistics.median(separations.values()):.2f} spreads" if separations else ""
        lines.append(f"look-alikes: squared distance to the nearest other one {rivals:.4g}{spreads} (median)")
    return "\n".join(lines)
