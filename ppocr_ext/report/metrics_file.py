"""Read ``metrics.jsonl``, the numbers that a run records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ppocr_ext.errors import DataError
from ppocr_ext.report.formats import finite_number

METRICS_FILE = "metrics.jsonl"


Series = list[tuple[int, float]]  # (step, value), NaN for a step without a value


@dataclass(frozen=True)
class Metrics:
    """Lines of a ``metrics.jsonl``, in their order.

    Attributes:
        train: ``{"epoch", "step", "time", "lr", "loss", "losses": {…}, "ips"}`` for each window of steps.
        evals: ``{"epoch", "step", "acc", "norm_edit_dis", …}`` for each evaluation.
    """

    train: list[dict[str, Any]] = field(default_factory=list)
    evals: list[dict[str, Any]] = field(default_factory=list)

    def series(self, kind: Literal["train", "eval"], key: str) -> Series:
        """Return ``key``, such as ``loss`` or ``acc``, over the steps; empty if no line has a number."""
        lines = self.train if kind == "train" else self.evals
        return _series((line["step"], line.get(key)) for line in lines)

    def loss_series(self, part: str) -> Series:
        """Return a part of the loss, named by :func:`short_loss_name`, over the steps."""
        named = (
            (line["step"], {short_loss_name(key): value for key, value in (line.get("losses") or {}).items()})
            for line in self.train
        )
        return _series((step, losses.get(part)) for step, losses in named)

    def loss_parts(self) -> list[str]:
        """Return the short names of the parts of the loss, in order of appearance."""
        parts = (part for line in self.train for part in line.get("losses") or {})
        return list(dict.fromkeys(short_loss_name(part) for part in parts))


def _series(points: Iterable[tuple[int, Any]]) -> Series:
    series = [(step, math.nan if finite_number(value) is None else float(value)) for step, value in points]
    return [] if all(math.isnan(value) for _, value in series) else series


def short_loss_name(name: str) -> str:
    """Return a name short enough for a legend: ``loss_ctc_Student_0`` and ``CTCLoss`` give ``ctc``."""
    if name.endswith("Loss") and "_" not in name:
        return name.removesuffix("Loss").lower() or name
    words = [w for w in name.split("_") if w not in ("loss", "Student") and not w.isdigit()]
    return "_".join(words) or name


def read_metrics(path: str | Path) -> Metrics:
    """Read ``metrics.jsonl``; ``path`` is the file or the folder of the run.

    A last line that is cut short, as after a kill, is skipped. Lines that a resumed run wrote again replace
    the first ones.

    Raises:
        DataError: the file is missing, or a line before the last is invalid.
    """
    path = Path(path)
    file = path / METRICS_FILE if path.is_dir() else path
    try:
        texts = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror}. A run writes it into its folder (Global.save_model_dir).",
            code="unreadable_file",
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
            raise DataError(
                f"{file}:{index + 1}: not a line of {METRICS_FILE} (found {text[:80]!r}).", code="bad_content"
            )
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
