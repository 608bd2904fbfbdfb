"""The host's step: what its loss, gradient and batch hold, and whether the optimizer may use them.

The proxies of :mod:`ppocr_ext.loop.step_proxies` ask :class:`OptimizerStep` before anything changes the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.data.batch_size import batch_size
from ppocr_ext.errors import DataError
from ppocr_ext.loop.accumulation import Group
from ppocr_ext.loop.anomaly import AnomalyWatch
from ppocr_ext.loop.events import StopRun
from ppocr_ext.loop.incidents import Incident, IncidentFolder, find_incident, layout_of
from ppocr_ext.loop.last_good import BeforeForward, LastGood
from ppocr_ext.loop.step_values import Limits, StepMeter, StepReading
from ppocr_ext.messages import LOG
from ppocr_ext.optim.trained_parts import scale_rates
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team

_ROLLBACK_FACTOR = 0.5  # of the learning rate


def limits_of(config: Config) -> Limits:
    """Return the limits that ``Global.absurd_input`` and ``Global.absurd_variance`` set; 0 switches one off."""
    given = (float(global_value(config, key)) or math.inf for key in ("absurd_input", "absurd_variance"))
    return Limits(*given)


class OptimizerStep:
    """Decide, when the host steps, whether the optimizer applies the gradient, and what to do at a bad value.

    Args:
        run: a training run.
        step_seed: returns the seed of Paddle's generator in the step after so many steps, for a replay.
        hook_states: returns what hooks keep, by their names.
        on_rollback: called with what they kept in the last good state, after the run has gone back to it.

    Attributes:
        reading: the values of the last step.
        losses: the loss dict of the last step, detached.
        images: images in the last batch.
        applied: the last step had no bad value, nor had its group before it.
        group: the batches of one step of the optimizer, ``Global.accumulate``.
        rate_factor: what rollbacks have multiplied the learning rate by.
    """

    def __init__(
        self,
        run: Run,
        step_seed: Callable[[int], int],
        hook_states: Callable[[], Mapping[str, Any]],
        on_rollback: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._run = run
        self._meter = StepMeter(run.network, run.loss, limits_of(run.config))
        self._scaler = run.amp.scaler
        trained = dict(self._meter.trained)
        batches, usual = int(global_value(run.config, "accumulate")), batch_size(run.config) or 1
        self.group = Group(batches, trained, run.unreached, usual)
        self._incidents = IncidentFolder(run, step_seed)
        self._limit = int(global_value(run.config, "nonfinite_limit"))
        mode = global_value(run.config, "nonfinite")
        self._before = BeforeForward(run.network, run.loss) if mode == "skip" else None
        self._last_good = LastGood(run, hook_states, self.group) if mode == "rollback" else None
        self._on_rollback = on_rollback
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
        self.rate_factor = run.rate_factor

    def begin(self, steps_done: int, ends_epoch: bool) -> None:
        """Prepare the step after ``steps_done`` steps, before its batch is seen."""
        self._steps_done = steps_done
        self._let_go()
        self._meter.begin()
        if self._before is not None:
            self._before.keep()
        if self._last_good is not None and self.applied and not self.group.is_open:
            self._last_good.keep(steps_done)
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
        elif self._last_good is not None and (same_group or self._rollbacks() < self._limit):
            step, kept = self._last_good.restore()
            self._on_rollback(kept)
            self._meter.forget()
            if not same_group:
                scale_rates(self._run.network, _ROLLBACK_FACTOR)
                self.rate_factor *= _ROLLBACK_FACTOR
            LOG.warning(
                "back to the state after step %d; the learning rate is multiplied by %g from now on (rollback %d)",
                step,
                self.rate_factor,
                self._rollbacks(),
            )
        else:
            raise StopRun(incident.summary, None, "nonfinite", save_latest=False)

    def _rollbacks(self) -> int:
        return round(math.log(self.rate_factor, _ROLLBACK_FACTOR))

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
