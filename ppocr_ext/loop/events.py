"""The events of a run, and the base of the hooks that receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.checkpoint.checkpoints import Position
from ppocr_ext.run.run import Run


@dataclass(frozen=True)
class StepDone:
    """One optimizer step.

    Attributes:
        losses: the loss dict as the loss returned it: scalar tensors by name, ``loss`` their sum. Of several
            processes, that of this one's batch.
        lr: learning rate of this step.
        images: images in the batches of all processes.
    """

    position: Position
    losses: Mapping[str, Any]
    lr: float
    images: int


@dataclass(frozen=True)
class EvalDone:
    """One evaluation during training: the values of the metric, and whether it is the best so far."""

    position: Position
    metrics: Mapping[str, float]
    is_best: bool
    best: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: ``"finished"``, ``"stopped"`` (by a signal) or ``"failed"``.
        reason: in words, empty when finished.
        signal: number of the signal that stopped it, or None.
    """

    status: str
    position: Position
    best: Mapping[str, float]
    reason: str = ""
    signal: int | None = None


class Hook:
    """Base of all hooks, one feature each. Every method may stay as it is."""

    def wrap_metric(self, metric: Any) -> Any:
        """Return the metric that the host calls, after ``on_start``: ``metric``, or a wrapper of it."""
        return metric

    def on_start(self, run: Run, position: Position) -> None:
        """Called before the first step; ``position`` is where the run begins or resumes."""

    def on_step(self, step: StepDone) -> None:
        """Called after an optimizer step."""

    def on_eval(self, result: EvalDone) -> None:
        """Called after an evaluation (rank 0 only)."""

    def on_save(self, prefix: Path, position: Position) -> None:
        """Called after a checkpoint has been written (rank 0 only)."""

    def on_epoch_end(self, position: Position) -> None:
        """Called after the last step of an epoch, before the next begins."""

    def on_end(self, outcome: Outcome) -> None:
        """Called once after every hook has started, even if the run failed."""
