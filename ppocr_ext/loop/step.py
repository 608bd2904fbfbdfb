"""The host's step: what its loss, gradient and batch hold, and whether the optimizer may use them.

The host calls ``loss(preds, batch)``, ``optimizer.step()`` or ``scaler.scale/minimize``, and
``optimizer.clear_grad()``. The proxies here pass these calls on, and ask :class:`OptimizerStep` before anything changes
the weights.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.loop.events import StopRun
from ppocr_ext.loop.incidents import IncidentFolder, find_incident, layout_of
from ppocr_ext.loop.proxies import Proxy
from ppocr_ext.loop.step_values import Limits, StepMeter, StepReading
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team

_LOG = logging.getLogger("ppocr_ext")
_MANY = 20  # steps in a row without effect: no longer the search for a scale


def limits_of(config: Config) -> Limits:
    """Return the limits that ``Global.absurd_input`` and ``Global.absurd_variance`` set; 0 switches one off."""
    given = (float(global_value(config, key)) or math.inf for key in ("absurd_input", "absurd_variance"))
    return Limits(*given)


class OptimizerStep:
    """Decide, when the host steps, whether the optimizer applies the gradient.

    Args:
        run: a training run.
        step_seed: returns the seed of Paddle's generator in the step of a number, for the replay of an incident.

    Attributes:
        reading: the values of the last step.
        losses: the loss dict of the last step, as the loss returned it.
        images: images in the last batch.
    """

    def __init__(self, run: Run, step_seed: Callable[[int], int]) -> None:
        self._run = run
        self._meter = StepMeter(run.network, run.loss, limits_of(run.config))
        self._scaler = run.amp.scaler
        self._incidents = IncidentFolder(run, step_seed)
        self._steps_done = self._last_good = run.start.global_step
        self._seen: tuple[Any, Sequence[Any]] = (None, ())
        self.reading = StepReading()
        self.losses: Mapping[str, Any] = {}
        self.images = 0

    def begin(self, steps_done: int) -> None:
        """Prepare the step after ``steps_done`` steps, before its batch is seen."""
        self._steps_done = steps_done
        self._meter.begin()

    def guard(self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]) -> Mapping[str, Any]:
        """Measure the forward pass; return ``losses`` with a total that is NaN if a value is bad."""
        self.losses, self.images = losses, len(batch[0])
        self._seen = (predictions, batch)
        factor = self._meter.forward(predictions, batch, losses, self._steps_done + 1)
        return {**losses, "loss": losses["loss"] * factor}

    def allows(self) -> bool:
        """Return True if the optimizer may apply the gradient; the same in all processes.

        Raises:
            StopRun: a value is bad, and the run stops for it.
        """
        scaling = self._scaler is not None and getattr(self._scaler, "_enable", False)
        self.reading = self._meter.read(self._scaler._scale if scaling else None)
        if not self.reading.is_good and not (scaling and self._is_overflow()):
            self._handle_bad()
        self._seen = (None, ())  # a step's outputs must not outlive it
        self._last_good = self._steps_done + 1
        return True

    def _is_overflow(self) -> bool:
        """Return True if the forward pass was good in every process: the scaler handles the gradient's overflow."""
        return team().highest(int(bool(self.reading.bad))) == 0

    def _handle_bad(self) -> None:
        predictions, batch = self._seen
        step, run = self._steps_done + 1, self._run
        incident = find_incident(
            self._meter,
            self.reading,
            step,
            self._last_good,
            predictions,
            batch,
            layout_of(run.config),
            run.charset,
        )
        folder = self._incidents.write(incident, batch, self._meter)
        for line in incident.lines():
            _LOG.error("%s", line)
        if folder is not None:
            _LOG.error("  reproduce it: %s", self._incidents.replay_command(folder))
        raise StopRun(incident.summary, None, "nonfinite", save_latest=False)


class LossProxy(Proxy):
    """The loss as the host calls it; ``guard`` sees predictions, batch and losses, and returns what the host gets."""

    def __init__(
        self, loss: Any, guard: Callable[[Any, Sequence[Any], Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        super().__init__(loss)
        self._guard = guard

    def __call__(self, predictions: Any, batch: Any) -> Mapping[str, Any]:
        """Return the loss dict of this batch."""
        return self._guard(predictions, batch, self.real(predictions, batch))


class OptimizerProxy(Proxy):
    """The optimizer as the host calls it; ``clear_grad`` is the end of a step, with and without AMP.

    Args:
        optimizer: the real one.
        on_step: called with the learning rate at the end of a step.
        allows: asked before the gradient is applied.
    """

    def __init__(
        self, optimizer: Any, on_step: Callable[[float], None], allows: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(optimizer)
        self._on_step = on_step
        self.allows = allows

    def step(self) -> None:
        """Apply the gradient, if that is allowed."""
        if self.allows():
            self.real.step()

    def clear_grad(self, *args: Any, **kwargs: Any) -> None:
        """Clear the gradients, which ends the step."""
        self.real.clear_grad(*args, **kwargs)
        self._on_step(float(self.real.get_lr()))


class ScalerProxy(Proxy):
    """The AMP scaler as the host calls it: it passes the real optimizer to Paddle's, and counts overflows.

    Attributes:
        skipped: steps that changed no weights, because their gradients overflowed.
        skipped_in_a_row: those of them since the last step that did.
    """

    skipped = skipped_in_a_row = 0

    def minimize(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the real ``minimize`` with the real optimizer, if that is allowed; count overflows, warn of them."""
        if isinstance(optimizer, OptimizerProxy) and not optimizer.allows():
            return None
        result = self.real.minimize(getattr(optimizer, "real", optimizer), *args, **kwargs)
        if not getattr(self.real, "_found_inf", False):
            self.skipped_in_a_row = 0
            return result
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped == 1:
            _LOG.info(
                "mixed precision: the gradients of this step overflowed, so it changed no weights. With a loss "
                "scale that adapts (Global.use_dynamic_loss_scaling) this happens now and then."
            )
        if self.skipped_in_a_row % _MANY == 0:
            _LOG.warning(
                "mixed precision: the gradients of %d steps in a row overflowed; nothing is learned. Lower "
                "Global.scale_loss, set Global.use_dynamic_loss_scaling: true, or use Global.amp_dtype: bfloat16.",
                self.skipped_in_a_row,
            )
        return result
