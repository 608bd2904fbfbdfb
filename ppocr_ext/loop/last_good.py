"""Undo a step with a bad value: what its forward pass changed, or everything since the last good state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import paddle

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.model_state import STATISTICS, parameter_names
from ppocr_ext.checkpoint.optimizer_state import MASTERS, drop_moments, restore_optimizer
from ppocr_ext.checkpoint.weights import put_back
from ppocr_ext.errors import WeightsError
from ppocr_ext.loop.accumulation import Group
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team
from ppocr_ext.run.train_setup import restore_loss

_EVERY = 100  # steps between two copies in memory
_OPTIMIZER = "optimizer."  # before the names of its tensors

Tensors = Mapping[str, Any]


def _copies(tensors: Tensors) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def tensors_of(network: Any, optimizer: Any) -> dict[str, Any]:
    """Return the tensors of a network and of its optimizer, master weights included, by name."""
    state = optimizer.state_dict()
    named = {**state, **(state.get(MASTERS) or {})}
    moments = {
        f"{_OPTIMIZER}{name}": value for name, value in named.items() if isinstance(value, paddle.Tensor)
    }
    return {**network.state_dict(), **moments}


def _loss_tensors(loss: Any) -> dict[str, Any]:
    return dict(loss.state_dict()) if isinstance(loss, paddle.nn.Layer) else {}


class BeforeForward:
    """A copy of what a forward pass changes: the statistics of BatchNorm, other buffers, the state of the loss."""

    def __init__(self, network: Any, loss: Any) -> None:
        self._loss = loss
        statistics = {name: p for name, p in network.named_parameters() if name.endswith(STATISTICS)}
        self._changing = {**statistics, **dict(network.named_buffers())}
        self._kept: tuple[Tensors, Tensors] = ({}, {})

    @paddle.no_grad()
    def keep(self) -> None:
        """Copy it, before a forward pass."""
        self._kept = _copies(self._changing), _copies(_loss_tensors(self._loss))

    @paddle.no_grad()
    def restore(self) -> None:
        """Put the copy back, after a forward pass."""
        for copies, tensors in zip(self._kept, (self._changing, _loss_tensors(self._loss)), strict=True):
            put_back(copies, tensors)


class LastGood:
    """The last good state of a run: its newest ``latest``, and before there is one, a copy in memory.

    The copy is taken at the start, after the first step of the optimizer, and then every 100 steps. The position in the
    data, the schedule of the learning rate and the counters of steps are not part of it.

    Args:
        run: a training run.
        hook_states: returns what hooks keep, by their names.
        group: knows which parameters have had no gradient yet.
    """

    def __init__(self, run: Run, hook_states: Callable[[], Mapping[str, Any]], group: Group) -> None:
        self._run, self._hook_states, self._group = run, hook_states, group
        self._states = run.folder / "latest.states"
        self._at_start = self._written()  # of an earlier run, or what this run resumes from
        self._copy: dict[str, Any] | None = None

    def _written(self) -> int | None:
        return self._states.stat().st_mtime_ns if self._states.is_file() else None

    def _has_checkpoint(self) -> bool:
        return self._written() not in (None, self._at_start)

    @paddle.no_grad()
    def keep(self, steps_done: int) -> None:
        """Copy the state after a good step, if it is time and there is no checkpoint."""
        kept = self._copy
        # the optimizer has its moments only after the first step
        later = kept is not None and kept["step"] > self._run.start.global_step
        if kept is not None and later and steps_done - kept["step"] < _EVERY:
            return
        if self._has_checkpoint():
            self._copy = None
            return
        run = self._run
        self._copy = {
            "step": steps_done,
            "tensors": _copies(tensors_of(run.network, run.optimizer)),
            "loss": _copies(_loss_tensors(run.loss)),
            "scaler": copy.deepcopy(run.amp.state()),
            "hooks": self._hook_states(),
            "unreached": set(self._group.unreached),
        }

    @paddle.no_grad()
    def restore(self) -> tuple[int, Mapping[str, Any]]:
        """Put the last good state back; return after how many steps it was, and what hooks kept then.

        Raises:
            WeightsError: the checkpoint cannot be read any more, or only some of the processes see it.
        """
        has_checkpoint = self._has_checkpoint()
        if team().highest(int(has_checkpoint)) and team().highest(int(not has_checkpoint)):
            raise WeightsError(
                f"{self._states}: not every process sees this checkpoint, so they cannot go back to the same state.\n"
                f"Fix: put the run folder where all machines see it, or use Global.nonfinite: skip.",
                code="missing_file",
            )
        if has_checkpoint:
            return self._restore_checkpoint()
        kept, run = self._copy, self._run
        assert kept is not None  # `keep` comes before the first step
        drop_moments(run.optimizer, {name.removeprefix(_OPTIMIZER) for name in kept["tensors"]})
        put_back(kept["tensors"], tensors_of(run.network, run.optimizer))
        put_back(kept["loss"], _loss_tensors(run.loss))
        run.amp.load(kept["scaler"])
        self._group.restore(kept["unreached"])
        return int(kept["step"]), kept["hooks"]

    def _restore_checkpoint(self) -> tuple[int, Mapping[str, Any]]:
        run, checkpoint = self._run, Checkpoint(self._run.folder / "latest")
        state = checkpoint.train_state()
        put_back(checkpoint.weights(), run.network.state_dict())
        schedule = run.schedule
        rate = copy.deepcopy(schedule.state_dict()) if hasattr(schedule, "state_dict") else None
        restore_optimizer(run.optimizer, checkpoint, parameter_names(run.network), state.parameter_names)
        if rate is not None:
            schedule.set_state_dict(rate)
        run.amp.load(state.scaler)
        self._group.restore(state.unreached)
        restore_loss(run.loss, state.loss, checkpoint.prefix)
        return state.position.global_step, state.hooks or {}
