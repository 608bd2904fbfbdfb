"""What happens in a run, as hooks are told it. Imports no Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ppocr_ext.run.run import Run


@dataclass
class Position:
    """Where the loop stands.

    Attributes:
        epoch: epochs completed.
        step_in_epoch: optimizer steps done in the epoch after those.
        global_step: optimizer steps done in all.
        epochs: epochs that the run is to have.
        steps_per_epoch: batches of one full epoch on this rank.
    """

    epoch: int
    step_in_epoch: int
    global_step: int
    epochs: int
    steps_per_epoch: int

    @property
    def current_epoch(self) -> int:
        """The epoch in progress, counted from 1."""
        return min(self.epoch + 1, self.epochs)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.epochs * self.steps_per_epoch

    def completed(self) -> tuple[int, int]:
        """(epochs completed, steps in the next), with a full epoch counted as completed."""
        if self.step_in_epoch >= self.steps_per_epoch:
            return self.epoch + 1, 0
        return self.epoch, self.step_in_epoch


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
    """One evaluation during training: what the metric said, and whether it is the best so far."""

    position: Position
    metrics: Mapping[str, float]
    is_best: bool
    best: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: ``"finished"``, ``"stopped"`` (by a signal, or a hook) or ``"failed"``.
        reason: in words, empty when finished.
        signal: number of the signal that stopped it, or None.
    """

    status: str
    position: Position
    best: Mapping[str, float]
    reason: str = ""
    signal: int | None = None


class Hook:
    """Base of all hooks: one feature, told of what happens. Every method may be left as it is."""

    def on_start(self, run: Run, position: Position) -> None:
        """Before the first step; after a resume ``position`` is where the run goes on."""

    def on_step(self, step: StepDone) -> None:
        """After an optimizer step."""

    def on_eval(self, result: EvalDone) -> None:
        """After an evaluation (rank 0 only)."""

    def on_save(self, prefix: Path, position: Position) -> None:
        """After a checkpoint has been written (rank 0 only)."""

    def on_epoch_end(self, position: Position) -> None:
        """After the last step of an epoch, before the next begins."""

    def on_end(self, outcome: Outcome) -> None:
        """Once, however the run ended."""
