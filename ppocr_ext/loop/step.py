"""The host's step: what its loss, gradient and batch hold, and whether the optimizer may use them.

The proxies of :mod:`ppocr_ext.loop.proxies` ask :class:`OptimizerStep` before anything changes the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import paddle
from paddle import Tensor, nn

from ppocr_ext.checkpoint.weights import STATISTICS, put_back
from ppocr_ext.data.batches import batch_size, images_of
from ppocr_ext.loop.events import StopRun
from ppocr_ext.loop.incidents import Incidents
from ppocr_ext.loop.step_values import AnomalyWatch, StepMeter, StepReading, limits_of
from ppocr_ext.messages import LOG
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team


class BeforeForward:
    """A copy of what a forward pass changes: the statistics of BatchNorm, other buffers, the state of the loss."""

    def __init__(self, network: nn.Layer, loss: Callable[..., Any]) -> None:
        self._loss = loss
        statistics = {name: p for name, p in network.named_parameters() if name.endswith(STATISTICS)}
        self._of_network = {**statistics, **dict(network.named_buffers())}
        self._kept: dict[str, Tensor] = {}

    def _tensors(self) -> dict[str, Tensor]:
        of_loss = self._loss.state_dict() if isinstance(self._loss, nn.Layer) else {}
        return {**self._of_network, **{f"loss: {name}": tensor for name, tensor in of_loss.items()}}

    @paddle.no_grad()
    def keep(self) -> None:
        """Copy it, before a forward pass."""
        self._kept = {name: tensor.clone() for name, tensor in self._tensors().items()}

    def restore(self) -> None:
        """Put the copy back, after a forward pass."""
        put_back(self._kept, self._tensors())


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
        batches = run.config.settings.accumulate
        usual = batch_size(run.config) or 1
        self.group = Group(batches, trained, run.unreached, usual)
        self._incidents = Incidents(run, self._meter, step_seed)
        self._limit = run.config.settings.nonfinite_limit
        skips = run.config.settings.nonfinite == "skip"
        self._before = BeforeForward(run.network, run.loss) if skips else None
        settings = run.config.settings
        self._watch = AnomalyWatch(
            run.network, run.loss, active=settings.detect_anomaly, compiled=settings.to_static
        )
        self._steps_done = self._good_step = run.start.global_step
        self._skipped_in_a_row = 0
        self._held: tuple[
            Any, ...
        ] = ()  # outputs, batch and loss of the step; the host's variables hold them too
        # the host computes a metric from the outputs after the step
        self._outputs_are_read = run.config.settings.cal_metric_during_train
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
        self.images = len(images_of(batch))
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
        if not self.applied:  # so it is in every process, and they may wait for each other
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
        """Empty the outputs and cut the graph of a step, which the host holds until the next forward pass has ended."""
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
        predictions, batch, _ = self._held
        step = self._steps_done + 1
        incident = self._incidents.report(
            self.reading, step, self._good_step, predictions, batch, elsewhere=elsewhere
        )
        same_group = self.group.is_bad
        if self._before is not None and (same_group or self._skipped_in_a_row < self._limit):
            self._skipped_in_a_row += not same_group
            self._before.restore()
            self._meter.variances = None
            LOG.warning("step %d is skipped (%d in a row)", step, self._skipped_in_a_row)
        else:
            raise StopRun(incident.summary, None, "nonfinite", save_latest=False)


def _empty(outputs: Any) -> None:
    """Take all tensors out of nested dicts and lists."""
    if type(outputs) in (dict, list):
        for each in outputs.values() if isinstance(outputs, dict) else outputs:
            _empty(each)
        outputs.clear()


class Group:
    """The batches whose gradients add up to one step of the optimizer; it never crosses the end of an epoch.

    With losses that are means over samples, the step is that of the joined batch of all processes: each batch counts by
    its number of samples. Without accumulation (``size`` 1) loss and gradient stay as PaddleOCR has them.

    Args:
        size: batches of a group; the last one of an epoch may be shorter.
        parameters: that get a gradient, by name.
        unreached: names of those that had none before a resume; None: of all.
        usual: samples of a batch whose loss keeps its value, and with it the range of mixed precision. The same in all
            processes, since their gradients are averaged after each batch.

    Attributes:
        unreached: names of the parameters that have had no gradient yet.
        is_open: further batches of the group follow this one.
        is_bad: a batch of the group had a bad value, so the optimizer does not step at its end.
    """

    def __init__(
        self,
        size: int,
        parameters: Mapping[str, Any],
        unreached: Collection[str] | None = None,
        usual: int = 1,
    ) -> None:
        self._size = size
        self._parameters = parameters
        self._usual = usual
        self._batches = self._samples = 0
        self.unreached = set(parameters if unreached is None else unreached)
        self.is_open = self.is_bad = False

    def begin_batch(self, ends_epoch: bool) -> None:
        """Count one more batch, of this group or of a new one."""
        if not self.is_open:
            self._batches = self._samples = 0
            self.is_bad = False
        self._batches += 1
        self.is_open = self._batches < self._size and not ends_epoch

    def weight(self, samples: int) -> float:
        """Return the factor of the loss of this batch, and add its number of samples."""
        self._samples += samples
        return samples / self._usual if self._size > 1 else 1.0

    def mean_factor(self) -> float:
        """Return the factor that turns the sum of the gradients so far into the gradient of the joined batch.

        At the end of a group all processes call this, and add up their samples. Inside a group the other processes
        are taken to have as many samples as this one.
        """
        if self._size == 1:
            return 1.0
        processes = team().size
        samples = self._samples * processes if self.is_open else team().total(self._samples)
        return self._usual * processes / samples

    @paddle.no_grad()
    def scale(self, factor: float) -> None:
        """Multiply the gradients."""
        for parameter in self._parameters.values() if factor != 1.0 else ():
            if parameter.grad is not None:
                parameter.grad.scale_(factor)

    @paddle.no_grad()
    def fill(self) -> None:
        """Give a gradient of zeros to a parameter that has none now, but had one in an earlier step.

        PaddleOCR sets gradients to zero after a step, so such a parameter decays and its moments go on. Here they are
        released, and without a gradient the optimizer would skip it.
        """
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                self.unreached.discard(name)
            elif name not in self.unreached:
                parameter.grad = paddle.zeros_like(parameter)
