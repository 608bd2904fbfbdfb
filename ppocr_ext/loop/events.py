"""The events of a run, and the base of the hooks that receive them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ppocr_ext.checkpoint.checkpoints import Position
from ppocr_ext.run.run import Run, Training


@dataclass(frozen=True)
class StepDone:
    """One step, which is one batch. With ``Global.accumulate`` the optimizer steps after a group of batches.

    Attributes:
        losses: the losses of this process's batch, as detached scalar tensors by name; ``loss`` is their sum.
        lr: learning rate of this step.
        images: number of images in the batches of all processes.
        values: numbers by name: ``grad_norm``, ``blank_share`` (share of the frames in which the blank is the most
            probable class), and measurements of hooks.
        applied: False if this batch, or an earlier one of its group, had a bad value. Then the step changed no weights,
            and `losses` and `values` may be NaN.
        is_whole: False inside a group, before the optimizer steps. Then `values` has no ``grad_norm``.
    """

    position: Position
    losses: Mapping[str, Any]
    lr: float
    images: int
    values: Mapping[str, float] = field(default_factory=dict)
    applied: bool = True
    is_whole: bool = True


@dataclass(frozen=True)
class EvalDone:
    """One evaluation of a run: values of the metric and measurements of hooks, and whether it is the best.

    Attributes:
        is_start: True for the start weights, before the first step, whose metrics are no result of the training.
    """

    position: Position
    metrics: Mapping[str, float]
    is_best: bool
    best: Mapping[str, float]
    is_start: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        status: a key of :data:`ppocr_ext.report.run_folder.EXIT_CODES`.
        reason: a sentence; empty if all epochs are done.
        signal: number of the signal that stopped the run, or None.
        evaluated: step of the last evaluation; 0 without one.
        eval_lines: the number of samples of ``Eval``.
    """

    status: str
    position: Position
    best: Mapping[str, float]
    reason: str = ""
    signal: int | None = None
    evaluated: int = 0
    eval_lines: int = 0


# Statuses of a stop. If processes stop for several reasons, the last one of them here wins.
_STOPS = ("finished", "stopped", "not_kept", "collapsed", "nonfinite")


@dataclass(eq=False)
class StopRun(Exception):  # noqa: N818 - not an error: it carries a decision through the host's loop
    """Raised at a step boundary to leave the host's loop; see :meth:`LoopControl.request_stop`."""

    reason: str
    signal: int | None = None
    status: str = "stopped"
    save_latest: bool = True

    @property
    def seriousness(self) -> int:
        """How serious the stop is, from 1. All processes stop with the highest value of any process."""
        return 1 + 2 * _STOPS.index(self.status) + (not self.save_latest)

    @classmethod
    def of_seriousness(cls, seriousness: int, signal: int | None = None) -> StopRun:
        """Return the stop for the ``seriousness`` of another process's stop."""
        status, unsaved = divmod(seriousness - 1, 2)
        return cls("another process was asked to stop", signal, _STOPS[status], not unsaved)


class LoopControl(Protocol):
    """The methods of the loop that a hook may call."""

    def request_stop(self, reason: str, *, status: str = "stopped", save_latest: bool = True) -> None:
        """Leave the loop at the next step boundary, in all processes.

        Args:
            reason: for the log and ``run.json``.
            status: ``"finished"`` (nothing is left to learn), ``"stopped"``, ``"not_kept"``, ``"collapsed"``
                or ``"nonfinite"``.
            save_latest: write the checkpoint ``latest`` first; if False, it stays as it was.
        """

    def interruptible(self, loader: Any) -> Any:
        """Return a loader of a list that process 0 reads: a stop that is requested meanwhile saves `latest`."""

    @property
    def best(self) -> Mapping[str, float]:
        """The metrics of the best evaluation, and its ``best_epoch``; 0 for the start weights."""

    def save_best(self, metrics: Mapping[str, float], is_start: bool) -> None:
        """Write the best checkpoint at the end of a run, with the :meth:`Hook.saved_weights` of the hooks.

        Args:
            metrics: what these weights read.
            is_start: True for the start weights.
        """


class Hook:
    """Base of all hooks, one feature each. A hook overrides the methods that it needs.

    Attributes:
        loop: the loop that calls the hook; set before ``on_start``.
    """

    loop: LoopControl

    def state(self) -> Mapping[str, Any]:
        """Return the state for a resumed run, which has it in ``training.hook_states``: plain containers and arrays."""
        return {}

    def saved_weights(self, name: str) -> Mapping[str, Any]:
        """Return weights that the checkpoint ``name`` stores in place of the network's (called in process 0).

        The network's own ones are stored in the training state, and a resumed run continues with them.
        """
        return {}

    def wrap_metric(self, metric: Any) -> Any:
        """Return the metric that the host calls, after ``on_start``: ``metric``, or a wrapper of it."""
        return metric

    def on_start(self, run: Run, training: Training) -> None:
        """Called before the first step; ``training.start`` is where the run begins or resumes."""

    def measure_outputs(
        self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]
    ) -> Mapping[str, float]:
        """Called after the forward pass; return values to add to the values of the step.

        Args:
            predictions: the outputs of the network. Their dicts and lists are emptied at the end of the step, so copy
                what you keep.
            batch: tensors, the images first.
            losses: scalars by name.
        """
        return {}

    def measure_eval(self) -> Mapping[str, float]:
        """Called after an evaluation, before ``on_eval`` (process 0 only); return values to add to its metrics."""
        return {}

    def judge_best(self, metrics: Mapping[str, float], step: int) -> tuple[bool, Mapping[str, float]]:
        """Called if an evaluation is better than the best; return whether it may be it, and values to add to it.

        Args:
            metrics: those of the evaluation.
            step: its step; 0 for the start weights.
        """
        return True, {}

    def on_step(self, step: StepDone) -> None:
        """Called after each step."""

    def on_eval_start(self) -> None:
        """Called before an evaluation, and after a save within it (process 0 only)."""

    def on_eval_end(self) -> None:
        """Called after ``on_eval``, and before a save within an evaluation (process 0 only)."""

    def on_eval(self, result: EvalDone) -> None:
        """Called after an evaluation (process 0 only)."""

    def on_save(self, prefix: Path, position: Position) -> None:
        """Called after a checkpoint has been written (process 0 only)."""

    def on_epoch_end(self) -> None:
        """Called after the last step of an epoch, before the next begins."""

    def on_trained(self) -> None:
        """Called after the last step of a run that has finished, within an evaluation (process 0 only).

        A hook may choose other weights as the best, and end the run as ``not_kept``.
        """

    def on_end(self, outcome: Outcome) -> None:
        """Called once at the end, even if the run failed."""
