"""Read ``metrics.jsonl``, the record that a run keeps of itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppocr_ext.errors import DataError
from ppocr_ext.report.names import short_name
from ppocr_ext.report.text import number

METRICS_FILE = "metrics.jsonl"


@dataclass(frozen=True)
class Series:
    """A number over the steps of a run; NaN where the run had none."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.steps)


@dataclass(frozen=True)
class Metrics:
    """The lines of a ``metrics.jsonl``, in their order.

    Attributes:
        train: ``{"epoch", "step", "time", "lr", "loss", "losses": {…}, "ips"}`` for each window of steps.
        evals: ``{"epoch", "step", "acc", "norm_edit_dis", …}`` for each evaluation.
    """

    train: list[dict[str, Any]] = field(default_factory=list)
    evals: list[dict[str, Any]] = field(default_factory=list)

    def train_series(self, key: str) -> Series:
        """``key`` (``loss``, ``lr``, ``ips``) over the steps; empty if no line has it."""
        return _series(self.train, lambda line: line.get(key))

    def loss_series(self, part: str) -> Series:
        """A part of the loss, by its short name, over the steps."""
        return _series(self.train, lambda line: _part(line.get("losses") or {}, part))

    def eval_series(self, key: str) -> Series:
        """``key`` (``acc``, ``norm_edit_dis``) over the evaluations; empty if no line has it."""
        return _series(self.evals, lambda line: line.get(key))

    def loss_parts(self) -> list[str]:
        """Short names of the parts of the loss, in the order in which they appear."""
        parts = (part for line in self.train for part in line.get("losses") or {})
        return list(dict.fromkeys(short_name(part) for part in parts))


def _series(lines: list[dict[str, Any]], value: Callable[[dict[str, Any]], Any]) -> Series:
    series = Series()
    for line in lines:
        found = number(value(line))
        series.steps.append(line["step"])
        series.values.append(math.nan if found is None else found)
    return series if any(not math.isnan(v) for v in series.values) else Series()


def read_metrics(path: str | Path) -> Metrics:
    """Read ``metrics.jsonl``; ``path`` is the file or the folder of the run.

    A last line cut short, as a run that was killed leaves it, is left out. Where a run was taken up
    again from an earlier step, the lines that it wrote again stand in for the first ones.

    Raises:
        DataError: the file is missing, or a line before the last is not one of ours.
    """
    path = Path(path)
    file = path / METRICS_FILE if path.is_dir() else path
    try:
        texts = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror}. A run writes it into its folder (Global.save_model_dir)."
        ) from error
    metrics = Metrics()
    last = max((index for index, text in enumerate(texts) if text.strip()), default=-1)
    for index, text in enumerate(texts[: last + 1]):
        line = _parse(text)
        if line is not None:
            kept = metrics.train if line["kind"] == "train" else metrics.evals
            while kept and kept[-1]["step"] >= line["step"]:
                kept.pop()
            kept.append(line)
        elif text.strip() and index != last:
            raise DataError(f"{file}:{index + 1}: no line of a {METRICS_FILE}: {text[:80]!r}.")
    return metrics


def _parse(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except json.JSONDecodeError:
        return None
    known = (
        isinstance(line, dict) and line.get("kind") in ("train", "eval") and isinstance(line.get("step"), int)
    )
    return line if known else None


def _part(losses: Mapping[str, Any], part: str) -> Any:
    """The loss whose short name is ``part``; None where there is none."""
    return next((value for name, value in losses.items() if short_name(name) == part), None)
