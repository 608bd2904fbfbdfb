"""Summarise a set of centers: characters without a center, and pairs of near centers. Imports no Paddle.

Distances are measured in standard deviations of the frames around their center. Below 2, the frames of two characters
overlap.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.characters.look_alikes import look_alikes_of, symbol_name
from ppocr_ext.charset import Charset
from ppocr_ext.messages import shortened

_SHOWN = 30  # largest number of characters in a line of the summary
FEW_FRAMES = 10  # the mean of fewer frames is not reliable
_BLOCK = 512  # centers whose distances to all others are in memory at a time


@dataclass(frozen=True)
class CenterPair:
    """Two characters with near centers.

    Attributes:
        first, second: the characters.
        distance: the distance of their centers.
        ratio: the distance in standard deviations (the root of the mean of both variances). For a character with fewer
            than ``FEW_FRAMES`` frames, the median variance of the others is used.
    """

    first: str
    second: str
    distance: float
    ratio: float


def nearest_pairs(table: CenterTable, count: int = 20) -> list[CenterPair]:
    """Return the ``count`` pairs of characters with the smallest ratio, without the blank.

    Returns:
        The nearest pair first; empty if no variance is known, since no character has two different frames.
    """
    rows = np.flatnonzero(table.class_ids != 0)
    variance = _known_variance(table, rows)
    if variance is None or len(rows) < 2:
        return []
    centers = table.centers[rows].astype(np.float64)
    pairs = []
    for i, j in _near(centers, variance, 2 * count):
        distance = float(np.linalg.norm(centers[i] - centers[j]))
        pairs.append((distance / math.sqrt((variance[i] + variance[j]) / 2), distance, i, j))
    names = [table.characters[row] for row in rows]
    return [CenterPair(names[a], names[b], d, r) for r, d, a, b in sorted(pairs)[:count]]


def _known_variance(table: CenterTable, rows: np.ndarray) -> np.ndarray | None:
    """Return the variances, float64 [K], all above 0; None if no variance is known.

    Characters with few or equal frames get the median of the others.
    """
    counts = table.counts[rows]
    variance = table.variance[rows]
    known = (counts >= FEW_FRAMES) & (variance > 0)
    if known.any():
        usual = float(np.median(variance[known]))
    else:  # unbiased: the variance around the mean of n frames is (n - 1) / n of that around the true center
        usual = float((counts * variance).sum() / max(1, np.maximum(counts - 1, 0).sum()))
    return np.where(known, variance, usual) if usual > 0 else None


def _near(centers: np.ndarray, variance: np.ndarray, count: int) -> Iterator[tuple[int, int]]:
    """Yield rows i < j of the ``count`` pairs with the smallest ratios, which are approximate, since in float32."""
    moved = (centers - centers.mean(axis=0)).astype(np.float32)  # near 0, where float32 is exact enough
    norms = np.einsum("kd,kd->k", moved, moved)
    width = variance.astype(np.float32)
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


def look_alike_distance(table: CenterTable, groups: Sequence[str]) -> float | None:
    """Return the median squared distance from a look-alike's center to the nearest of its look-alikes.

    Args:
        table: the centers.
        groups: look-alikes, such as ``("未末", "O0o")``.

    Returns:
        None if no two characters of a group have a center.
    """
    distances = [squared for _, _, squared in _nearest_look_alikes(table, groups)]
    return statistics.median(distances) if distances else None


def look_alike_ratios(table: CenterTable, groups: Sequence[str]) -> dict[str, float]:
    """Return the distance from each look-alike's center to the nearest of its look-alikes, in standard deviations.

    The ratio is that of :class:`CenterPair`. Unlike :func:`look_alike_distance` it does not depend on the scale of the
    features, so models can be compared.

    Args:
        table: the centers.
        groups: look-alikes, such as ``("未末", "O0o")``.

    Returns:
        Ratio by character, if the character and a look-alike have a center; empty if no variance is known.
    """
    rows = np.flatnonzero(table.class_ids != 0)
    known = _known_variance(table, rows)
    if known is None:
        return {}
    variance = dict(zip(rows.tolist(), known.tolist(), strict=True))
    return {
        table.characters[own]: math.sqrt(squared / ((variance[own] + variance[other]) / 2))
        for own, other, squared in _nearest_look_alikes(table, groups)
    }


def _nearest_look_alikes(table: CenterTable, groups: Sequence[str]) -> Iterator[tuple[int, int, float]]:
    """Yield (row, row of its nearest look-alike, squared distance) of each look-alike, if both have a center."""
    row_of = {character: row for row, character in enumerate(table.characters) if table.class_ids[row] != 0}
    for character, look_alikes in look_alikes_of(groups).items():
        others = [row_of[other] for other in sorted(look_alikes) if other in row_of]
        if character in row_of and others:
            own = table.centers[row_of[character]].astype(np.float64)
            squared = ((table.centers[others] - own) ** 2).sum(axis=1)
            nearest = int(squared.argmin())
            yield row_of[character], others[nearest], float(squared[nearest])


@dataclass(frozen=True)
class CenterSummary:
    """The facts about a set of centers for the screen and ``centers.json``.

    Attributes:
        classes: number of characters of the dictionary, without the blank.
        missing: characters without a center.
        few: the number of frames of each character that has fewer than ``FEW_FRAMES``.
        pairs: the nearest pairs.
        distance: see :func:`look_alike_distance`.
        ratios: see :func:`look_alike_ratios`.
    """

    classes: int
    missing: Sequence[str]
    few: Mapping[str, int]
    pairs: Sequence[CenterPair]
    distance: float | None = None
    ratios: Mapping[str, float] | None = None

    @classmethod
    def of(cls, table: CenterTable, charset: Charset, groups: Sequence[str]) -> CenterSummary:
        """Return the summary of ``table``."""
        counts = dict(zip(table.class_ids.tolist(), table.counts.tolist(), strict=True))
        symbols = list(enumerate(charset.ctc_symbols))[1:]
        return cls(
            classes=len(symbols),
            missing=[symbol for c, symbol in symbols if c not in counts],
            few={symbol: counts[c] for c, symbol in symbols if 0 < counts.get(c, 0) < FEW_FRAMES},
            pairs=nearest_pairs(table),
            distance=look_alike_distance(table, groups),
            ratios=look_alike_ratios(table, groups),
        )

    def to_json(self, table: CenterTable, accuracy: float, samples: int) -> str:
        """Return the JSON to write beside the centers."""
        ratios = self.ratios or {}
        content: dict[str, Any] = {
            "lines": samples,
            "accuracy": round(accuracy, 6),
            "centers": len(table.class_ids),
            "features": table.feat_dim,
            "characters": self.classes,
            "without_center": list(self.missing),
            f"fewer_than_{FEW_FRAMES}_frames": dict(self.few),
            "nearest_pairs": [
                {
                    "pair": [p.first, p.second],
                    "distance": round(p.distance, 6),
                    "in_spreads": round(p.ratio, 4),
                }
                for p in self.pairs
            ],
            "squared_distance_of_look_alikes": None if self.distance is None else round(self.distance, 6),
            "look_alikes_in_spreads": {
                c: round(ratios[c], 4) for c in sorted(ratios, key=lambda c: ratios[c])
            },
            "meta": dict(table.meta),
        }
        return json.dumps(content, ensure_ascii=False, indent=2) + "\n"

    def to_text(self) -> str:
        """Return the lines for the screen."""
        lines = [f"characters with a center: {self.classes - len(self.missing):,} of {self.classes:,}"]
        if self.missing:
            lines.append(f"without: {shortened([symbol_name(c) for c in self.missing], _SHOWN, ' ')}")
        if self.few:
            few = [f"{symbol_name(symbol)} ({count})" for symbol, count in self.few.items()]
            lines.append(f"with fewer than {FEW_FRAMES} frames: {shortened(few, _SHOWN, ' ')}")
        if self.pairs:
            lines.append("nearest pairs, by distance in standard deviations (below 2 they overlap):")
            lines += [
                f"  {symbol_name(p.first)} {symbol_name(p.second)}  {p.ratio:.2f}" for p in self.pairs[:10]
            ]
        if self.distance is not None:
            ratio = (
                f", {statistics.median(self.ratios.values()):.2f} standard deviations" if self.ratios else ""
            )
            lines.append(
                f"look-alikes: squared distance to the nearest one {self.distance:.4g}{ratio} (median)"
            )
        return "\n".join(lines)
