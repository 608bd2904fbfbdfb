"""What the look-alikes experiment found, as numbers and as Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppocr_ext.data.predictions import Read
from ppocr_ext.report.confusion import Rate, look_alike_errors, mcnemar


@dataclass(frozen=True)
class Judgement:
    """How a model reads the two lists of a set of fonts.

    Attributes:
        look_alikes: share of look-alikes that were read as another one of their group.
        rich: lines rich in look-alikes, read without error.
        general: lines in which all characters are as likely, read without error.
        right: which lines of ``rich`` those were.
        separation: of the model's centers of look-alikes, each to the nearest other one, in spreads (median).
    """

    look_alikes: Rate
    rich: Rate
    general: Rate
    right: tuple[bool, ...]
    separation: float | None = None

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


def judged(rich: Sequence[Read], general: Sequence[Read], groups: Sequence[str]) -> Judgement:
    """Judge what was read of the lines rich in ``groups``, and of general ones."""
    right = tuple(line.right for line in rich)
    return Judgement(
        look_alike_errors(((line.label, line.text) for line in rich), groups),
        Rate(sum(right), len(right)),
        Rate(sum(line.right for line in general), len(general)),
        right,
    )


def to_markdown(results: Mapping[str, Sequence[Judgement]], plain: str) -> str:
    """A table: means over the seeds, with their standard deviations.

    Args:
        results: judgements of each model, one a seed.
        plain: the model that the others are compared with.
    """
    base = _mean_error(results[plain])
    lines = [
        "| model | look-alike error | against plain | McNemar's p (lines), by seed | lines right "
        "| general lines right | look-alikes' centers apart, in spreads |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, seeds in results.items():
        compared = len(seeds) == len(results[plain]) and name != plain
        change = f"{_mean_error(seeds) / base - 1:+.0%}" if compared else ""
        p_values = [mcnemar(a.right, b.right).p_value for a, b in zip(results[plain], seeds, strict=False)]
        apart = [seed.separation for seed in seeds if seed.separation is not None]
        lines.append(
            f"| {name} | {_percent([seed.look_alikes.value for seed in seeds], 2)} | {change} "
            f"| {', '.join(f'{p:.2g}' for p in p_values) if compared else ''} "
            f"| {_percent([seed.rich.value for seed in seeds], 1)} "
            f"| {_percent([seed.general.value for seed in seeds], 1)} "
            f"| {_told(apart, 2) if apart else ''} |"
        )
    return "\n".join(lines)


def _mean_error(seeds: Sequence[Judgement]) -> float:
    return statistics.fmean(seed.look_alikes.value for seed in seeds)


def _percent(shares: Sequence[float], digits: int) -> str:
    return "" if any(map(math.isnan, shares)) else f"{_told([100 * share for share in shares], digits)} %"


def _told(values: Sequence[float], digits: int) -> str:
    """The mean, and of several values their standard deviation."""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"
