"""The events of a run, and the base of the hooks that receive them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ppocr_ext.checkpoint.checkpoints import Position
from ppocr_ext.run.run import Run


@dataclass(frozen=True)
class StepDone:
    """One step: a batch, after which the optimizer steps, with ``Global.accumulate`` at the end of a group.

    Attributes:
        losses: the loss dict, detached: scalar tensors by name, ``loss`` their sum. Of several processes, that of this
            one's batch.
        lr: learning rate of this step.
        images: images in the batches of all processes.
        values: plain numbers: ``grad_norm``, ``blank_share``, the share of frames that the blank wins, and what hooks
            measured.
        applied: False if a value was bad, in this batch or before it in its group, so that the step changed no weights;
            `losses` and `values` may be NaN then.
        is_whole: False inside a group, where the optimizer does not step yet; ``grad_norm`` is not in `values` then.
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
    """One evaluation of a run: the metric's values and what hooks measured, and whether it is the best.

    Attributes:
        is_start: it is of the weights that the run starts from, before its first step: no result of the training.
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
        reason: in words; empty if all epochs are done.
        signal: number of the signal that stopped it, or None.
        evaluated: step of the last evaluation; 0 without one.
    """

    status: str
    position: Position
    best: Mapping[str, float]
    reason: str = ""
    signal: int | None = None
    evaluated: int = 0


# Statuses of a stop, the more serious last: it wins if processes stop for several reasons.
_STOPS = ("finished", "stopped", "collapsed", "nonfinite")


@dataclass(eq=False)
class StopRun(Exception):  # noqa: N818 - not an error: it carries a decision through the host's loop
    """Raised at a step boundary to leave the host's loop; see :meth:`LoopControl.request_stop`."""

    reason: str
    signal: int | None = None
    status: str = "stopped"
    save_latest: bool = True

    @property
    def rank(self) -> int:
        """How serious the stop is, from 1; the processes agree on the highest."""
        return 1 + 2 * _STOPS.index(self.status) + (not self.save_latest)

    @classmethod
    def of_rank(cls, rank: int, signal: int | None = None) -> StopRun:
        """Return the stop of another process that has the ``rank``."""
        status, unsaved = divmod(rank - 1, 2)
        return cls("another process was asked to stop", signal, _STOPS[status], not unsaved)


class LoopControl(Protocol):
    """What a hook may ask of the loop."""

    def request_stop(self, reason: str, *, status: str = "stopped", save_latest: bool = True) -> None:
        """Leave the loop at the next step boundary, in all processes.

        Args:
            reason: for the log and ``run.json``.
            status: ``"finished"`` (there is nothing left to learn), ``"stopped"``, ``"collapsed"`` or ``"nonfinite"``.
            save_latest: write the checkpoint ``latest`` first; if not, it stays as it was.
        """


class Hook:
    """Base of all hooks, one feature each. Every method may stay as it is.

    Attributes:
        loop: the loop that calls the hook, from ``on_start`` on.
    """

    loop: LoopControl

    def state(self) -> Mapping[str, Any]:
        """Return what a resumed run needs, in plain containers and arrays; it finds it in ``run.hook_states``."""
        return {}

    def saved_weights(self, name: str) -> Mapping[str, Any]:
        """Return the entries that the checkpoint ``name`` stores in place of the network's; of process 0.

        The network's own ones go into its training state, and a resumed run continues with those.
        """
        return {}

    def wrap_metric(self, metric: Any) -> Any:
        """Return the metric that the host calls, after ``on_start``: ``metric``, or a wrapper of it."""
        return metric

    def on_start(self, run: Run, position: Position) -> None:
        """Called before the first step; ``position`` is where the run begins or resumes."""

    def measure_outputs(
        self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]
    ) -> Mapping[str, float]:
        """Called after the forward pass; what it returns gets into the values of the step.

        Args:
            predictions: of the network. Its dicts and lists are emptied when the step ends: copy what is to be kept.
            batch: tensors, the images first.
            losses: scalars by name.
        """
        return {}

    def measure_eval(self) -> Mapping[str, float]:
        """Called after an evaluation, before ``on_eval`` (rank 0 only); the result gets into its metrics."""
        return {}

    def on_step(self, step: StepDone) -> None:
        """Called after each step."""

    def on_eval_start(self) -> None:
        """Called before an evaluation, and after a save in its midst (rank 0 only)."""

    def on_eval_end(self) -> None:
        """Called after ``on_eval``, and before a save in the midst of an evaluation (rank 0 only)."""

    def on_eval(self, result: EvalDone) -> None:
        """Called after an evaluation (rank 0 only)."""

    def on_save(self, prefix: Path, position: Position) -> None:
        """Called after a checkpoint has been written (rank 0 only)."""

    def on_epoch_end(self, position: Position) -> None:
        """Called after the last step of an epoch, before the next begins."""

    def on_end(self, outcome: Outcome) -> None:
        """Called once after every hook has started, even if the run failed."""
