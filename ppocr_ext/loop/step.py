"""The host's step: what its loss, gradient and batch hold, and whether the optimizer may use them.

The proxies of :mod:`ppocr_ext.loop.step_proxies` ask :class:`OptimizerStep` before anything changes the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import paddle

from ppocr_ext.checkpoint.model_state import STATISTICS
from ppocr_ext.checkpoint.weights import put_back
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.data.batch_size import batch_size
from ppocr_ext.errors import DataError
from ppocr_ext.loop.accumulation import Group
from ppocr_ext.loop.anomaly import AnomalyWatch
from ppocr_ext.loop.events import StopRun
from ppocr_ext.loop.incidents import Incident, IncidentFolder, find_incident, layout_of
from ppocr_ext.loop.step_values import Limits, StepMeter, StepReading
from ppocr_ext.messages import LOG
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team

Tensors = Mapping[str, Any]


def limits_of(config: Config) -> Limits:
    """Return the limits that ``Global.absurd_input`` and ``Global.absurd_variance`` set; 0 switches one off."""
    given = (float(global_value(config, key)) or math.inf for key in ("absurd_input", "absurd_variance"))
    return Limits(*given)


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


def _copies(tensors: Tensors) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _loss_tensors(loss: Any) -> dict[str, Any]:
    return dict(loss.state_dict()) if isinstance(loss, paddle.nn.Layer) else {}


class OptimizerStep:
    """Decide, when the host steps, whether the optimizer applies the gradient, and what to do at a bad value.

    Args:
        run: a training run.
        step_seed: returns the seed of Paddle's generator in the step after so many steps, for a replay.

    Attributes:
        reading: the values of the last step.
        losses: the loss dict of the last step, detached.
        images: images in the last batch.
        applied: the last step had no bad value, nor had its group before it.
        group: the batches of one step of the optimizer, ``Global.accumulate``.
    """

    def __init__(self, run: Run, step_seed: Callable[[int], int]) -> None:
        self._run = run
        self._meter = StepMeter(run.network, run.loss, limits_of(run.config))
        self._scaler = run.amp.scaler
        trained = dict(self._meter.trained)
        batches, usual = int(global_value(run.config, "accumulate")), batch_size(run.config) or 1
        self.group = Group(batches, trained, run.unreached, usual)
        self._incidents = IncidentFolder(run, step_seed)
        self._limit = int(global_value(run.config, "nonfinite_limit"))
        skips = global_value(run.config, "nonfinite") == "skip"
        self._before = BeforeForward(run.network, run.loss) if skips else None
        detects, compiled = (bool(global_value(run.config, key)) for key in ("detect_anomaly", "to_static"))
        self._watch = AnomalyWatch(run.network, run.loss, active=detects, compiled=compiled)
        self._steps_done = self._good_step = run.start.global_step
        self._skipped_in_a_row = 0
        self._held: tuple[Any, ...] = ()  # outputs, batch and loss, which variables of the host hold
        self._outputs_are_read = bool(global_value(run.config, "cal_metric_during_train"))  # after the step
        self.reading = StepReading()
        self.losses: Mapping[str, Any] = {}
        self.images = 0
        self.applied = True

    def begin(self, steps_done: int, ends_epoch: bool) -> None:
        """Prepare the step after ``steps_done`` steps, before its batch is seen."""
        self._steps_done = steps_done
        self._let_go()
        self._meter.begin()
        if self._before is not None:
            self._before.keep()
        self.group.begin_batch(ends_epoch)
        self._watch.on("the loss")

    def guard(self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Measure the forward pass; return ``losses`` with a total that is NaN if a value is bad."""
        self.losses = {name: value.detach() for name, value in losses.items()}
        self.images = len(batch[0])
        self._watch.off()
        factor = self._meter.forward(predictions, batch, losses, self._steps_done + 1)
        total = losses["loss"] * factor * self.group.weight(self.images)
        self._held = predictions, batch, total
        if self._watch.active and math.isfinite(float(factor)):
            self._watch.on("the backward pass")
        return {**self.losses, "loss": total}

    def allows(self) -> bool:
        """Return True if the optimizer may apply the gradient; the same in all processes.

        Raises:
            StopRun: a value is bad, and the run stops for it.
        """
        self._watch.off()
        scaling = self._scaler is not None and getattr(self._scaler, "_enable", False)
        reading = self._meter.read(self._scaler._scale if scaling else None)
        factor = self.group.mean_factor()
        self.reading = replace(reading, grad_norm=reading.grad_norm * factor)
        self.applied = self.reading.is_good
        if not self.applied:  # in every process, so they may wait for each other
            forward_is_bad = team().highest(int(bool(self.reading.bad))) > 0
            self.applied = scaling and not forward_is_bad  # the scaler handles the gradient's overflow
            if not self.applied:
                self._handle_bad(elsewhere=forward_is_bad and not self.reading.bad)
                self.group.is_bad = True
        if not self._outputs_are_read:
            self._let_go()
        if self.applied:
            self._good_step = self._steps_done + 1
        self.applied = not self.group.is_bad
        if self.group.is_open or self.group.is_bad:
            return False
        self._skipped_in_a_row = 0
        self.group.scale(factor)
        self.group.fill()
        return True

    def _let_go(self) -> None:
        """Release the outputs and the graph of a step, which the host's loop holds until the next forward pass ends."""
        if self._held:
            predictions, _, total = self._held
            _empty(predictions)
            total.detach_()
        self._held = ()

    def keeps_gradient(self) -> bool:
        """Return True if the gradient of this batch is added to those of the next."""
        return self.group.is_open and not self.group.is_bad

    def anomaly(self, error: BaseException) -> str | None:
        """Return what ``Global.detect_anomaly`` found, if ``error`` comes from it; switch its check off."""
        self._watch.off()
        return self._watch.describe(error)

    def _handle_bad(self, elsewhere: bool) -> None:
        incident = self._report(elsewhere)
        same_group = self.group.is_bad
        if self._before is not None and (same_group or self._skipped_in_a_row < self._limit):
            self._skipped_in_a_row += not same_group
            self._before.restore()
            self._meter.forget()
            LOG.warning("step %d is skipped (%d in a row)", incident.step, self._skipped_in_a_row)
        else:
            raise StopRun(incident.summary, None, "nonfinite", save_latest=False)

    def _report(self, elsewhere: bool) -> Incident:
        """Say what is bad, and write the incident; ``elsewhere``: in the forward pass of another process."""
        predictions, batch, _ = self._held
        step, run = self._steps_done + 1, self._run
        meter, reading, layout = self._meter, self.reading, layout_of(run.config)
        incident = find_incident(
            meter, reading, step, self._good_step, predictions, batch, layout, run.charset
        )
        if elsewhere:
            incident = replace(
                incident, bad=["a value is bad in another process (see its incident)"], gradients=()
            )
        for line in incident.lines():
            LOG.error("%s", line)
        folder = None
        try:
            folder = self._incidents.write(incident, batch, self._meter)
        except (OSError, DataError) as error:  # a full disk must not decide over the run
            LOG.warning("the incident cannot be written: %s", error)
        if folder is not None:
            LOG.error("  reproduce it: %s", self._incidents.replay_command(folder))
        return incident


def _empty(outputs: Any) -> None:
    """Take all tensors out of nested dicts and lists."""
    if type(outputs) in (dict, list):
        for each in outputs.values() if isinstance(outputs, dict) else outputs:
            _empty(each)
        outputs.clear()
