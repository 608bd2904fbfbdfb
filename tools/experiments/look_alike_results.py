"""What the look-alikes experiment found, as numbers and as Markdown."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.table import markdown, mean

from ppocr_ext.evaluation.predictions import (
    McNemar,
    Prediction,
    Rate,
    characters_in_groups,
    look_alike_errors,
)

STUDENT = "student"  # the model that all are fine-tuned from
_PARTS = 3  # into which look-alikes are divided by how near their centers lay


@dataclass(frozen=True)
class LookAlikeScores:
    """How a model reads the two lists of a set of fonts, and how far apart it holds look-alikes.

    Attributes:
        look_alikes: share of look-alikes that were read as another one of their group.
        rich: lines rich in look-alikes, read without error.
        general: lines in which all characters are as likely, read without error.
        right: which lines of ``rich`` those were.
        by_character: ``look_alikes`` of each of them.
        separations: of each look-alike's center to the nearest one of its look-alikes, in standard deviations, on the
            fonts of validation.
    """

    look_alikes: Rate
    rich: Rate
    general: Rate
    right: tuple[bool, ...]
    by_character: Mapping[str, Rate]
    separations: Mapping[str, float] = field(default_factory=dict)

    @property
    def separation(self) -> float | None:
        """Median of ``separations``; None without any."""
        return statistics.median(self.separations.values()) if self.separations else None

    def to_json(self) -> dict[str, Any]:
        """The numbers."""
        return {
            "look_alike_error": self.look_alikes.value,
            "look_alikes": self.look_alikes.total,
            "interval": list(self.look_alikes.interval),
            "accuracy": self.rich.value,
            "general_accuracy": self.general.value,
            "separation": self.separation,
        }


def score(
    rich: Sequence[Prediction], general: Sequence[Prediction], groups: Sequence[str]
) -> LookAlikeScores:
    """Score the predictions on text lines rich in ``groups``, and on general ones."""
    right = tuple(line.correct for line in rich)
    pairs = [(line.label, line.text) for line in rich]
    return LookAlikeScores(
        look_alike_errors(pairs, groups),
        Rate(sum(right), len(right)),
        Rate(sum(line.correct for line in general), len(general)),
        right,
        _errors_by_character(pairs, groups),
    )


def _errors_by_character(lines: Sequence[tuple[str, str]], groups: Sequence[str]) -> dict[str, Rate]:
    """Return for each character of ``groups`` that occurs how often it was confused within a group."""
    found: dict[str, list[bool]] = {}
    for character, confused in characters_in_groups(lines, groups):
        found.setdefault(character, []).append(any(confused.values()))
    return {character: Rate(sum(wrong), len(wrong)) for character, wrong in found.items()}


def to_markdown(results: Mapping[str, Sequence[LookAlikeScores]], plain: str) -> str:
    """A table: means over the seeds, with their standard deviations.

    Args:
        results: scores of each model, one for each seed.
        plain: the model that the others are compared with.
    """
    base = _mean_error(results[plain])
    head = ["model", "look-alike error", "against plain", "McNemar's p (lines), by seed", "lines right"]
    head += ["general lines right", "look-alikes' centers apart, in standard deviations (validation fonts)"]
    rows = []
    for name, seeds in results.items():
        compared = name not in (STUDENT, plain)
        p_values = [McNemar.of(a.right, b.right).p_value for a, b in zip(results[plain], seeds, strict=False)]
        apart = [seed.separation for seed in seeds if seed.separation is not None]
        rows.append(
            [
                name,
                _percent([seed.look_alikes.value for seed in seeds], 2),
                _change(_mean_error(seeds), base) if compared else "",
                ", ".join(f"{p:.2g}" for p in p_values) if compared else "",
                _percent([seed.rich.value for seed in seeds], 1),
                _percent([seed.general.value for seed in seeds], 1),
                mean(apart, 2) if apart else "",
            ]
        )
    return markdown(head, rows)


def by_nearness(
    results: Mapping[str, Sequence[LookAlikeScores]], before: Mapping[str, float], plain: str
) -> str:
    """A table of the look-alike error of characters whose centers were near, less near, and far to begin with.

    Without one such character it is empty.

    Args:
        results: scores of each model, one for each seed.
        before: separations of the centers that were taken, on the lines of training; a third of the characters goes
            into each part.
        plain: the model that the others are compared with.
    """
    ordered = sorted(before, key=lambda character: before[character])
    cuts = [round(len(ordered) * part / _PARTS) for part in range(_PARTS + 1)]
    parts = [ordered[begin:end] for begin, end in itertools.pairwise(cuts) if begin < end]
    if not parts:
        return ""
    limits = [f"{before[part[0]]:.2f} to {before[part[-1]]:.2f}" for part in parts]
    head = ["model", *(f"centers {limit} standard deviations apart before" for limit in limits)]
    rows = []
    base = [_mean_of(results[plain], part) for part in parts]
    for name, seeds in results.items():
        cells = []
        for part, then in zip(parts, base, strict=True):
            value = _mean_of(seeds, part)
            change = "" if name in (STUDENT, plain) else _change(value, then)
            cells.append(_percent([value], 2) + (f" ({change})" if change else ""))
        rows.append([name, *cells])
    return markdown(head, rows)


def _change(value: float, base: float) -> str:
    """By how much ``value`` differs from ``base``; nothing where there is nothing to differ from."""
    return f"{value / base - 1:+.0%}" if base > 0 and not math.isnan(value) else ""


def _mean_of(seeds: Sequence[LookAlikeScores], characters: Sequence[str]) -> float:
    """Look-alike error of some characters, over all seeds."""
    rates = [seed.by_character[c] for seed in seeds for c in characters if c in seed.by_character]
    return Rate(sum(rate.hits for rate in rates), sum(rate.total for rate in rates)).value


def _mean_error(seeds: Sequence[LookAlikeScores]) -> float:
    return statistics.fmean(seed.look_alikes.value for seed in seeds)


def _percent(shares: Sequence[float], digits: int) -> str:
    return "" if any(map(math.isnan, shares)) else f"{mean([100 * share for share in shares], digits)} %"
