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
    """

    look_alikes: Rate
    rich: Rate
    general: Rate
    right: tuple[bool, ...]

    def to_json(self) -> dict[str, Any]:
        """The numbers."""
        return {
            "look_alike_error": self.look_alikes.value,
            "look_alikes": self.look_alikes.total,
            "interval": list(self.look_alikes.interval),
            "accuracy": self.rich.value,
            "general_accuracy": self.general.value,
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
    base = _mean(results[plain], "look_alikes")
    lines = [
        "| model | look-alike error | against plain | McNemar's p, by seed | lines right | general lines right |",
        "|---|---|---|---|---|---|",
    ]
    for name, seeds in results.items():
        compared = len(seeds) == len(results[plain]) and name != plain
        change = f"{_mean(seeds, 'look_alikes') / base - 1:+.0%}" if compared else ""
        p_values = [mcnemar(a.right, b.right).p_value for a, b in zip(results[plain], seeds, strict=False)]
        lines.append(
            f"| {name} | {_told(seeds, 'look_alikes', 2)} | {change} "
            f"| {', '.join(f'{p:.2g}' for p in p_values) if compared else ''} "
            f"| {_told(seeds, 'rich', 1)} | {_told(seeds, 'general', 1)} |"
        )
    return "\n".join(lines)


def _mean(seeds: Sequence[Judgement], key: str) -> float:
    return statistics.fmean(getattr(seed, key).value for seed in seeds)


def _told(seeds: Sequence[Judgement], key: str, digits: int) -> str:
    values = [getattr(seed, key).value for seed in seeds]
    spread = f" ± {100 * statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    mean = statistics.fmean(values)
    return "" if math.isnan(mean) else f"{100 * mean:.{digits}f}{spread} %"
