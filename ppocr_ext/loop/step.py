"""What the host's loop calls in a step, and the decision whether the optimizer may apply the gradient.

The host gets proxies in place of our objects, so that its calls become events. The names of their methods are
PaddleOCR's interface: ``iter(loader)``, ``optimizer.step()`` or ``scaler.scale`` and ``minimize``,
``optimizer.clear_grad()``, ``log_writer.log_metrics``. A proxy passes a call on and reports it to
:mod:`ppocr_ext.loop.adapter`. :class:`OptimizerStep` decides before anything changes the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.base import Proxy
from ppocr_ext.checkpoint.weights import STATISTICS, put_back
from ppocr_ext.data.batches import batch_size, images_of
from ppocr_ext.loop.events import StopRun
from ppocr_ext.loop.incidents import Incidents
from ppocr_ext.loop.step_values import AnomalyWatch, StepMeter, StepReading, limits_of
from ppocr_ext.messages import LOG
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.team import team
from ppocr_ext.run.train_setup import Training

_MANY = 20  # steps in a row without effect: more than a search for the right scale needs


class EvalLoader(Proxy):
    """The loader of ``Eval`` as the host gets it.

    Args:
        loader: the real one.
        on_start: called before an evaluation.
        on_batch: called before each batch.
    """

    def __init__(self, loader: Any, on_start: Callable[[], None], on_batch: Callable[[], None]) -> None:
        super().__init__(loader)
        self._on_start = on_start
        self._on_batch = on_batch

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Iterator[Any]:
        self._on_start()
        for batch in self.real:
            self._on_batch()
            yield batch


class MetricProxy(Proxy):
    """The metric as the host calls it.

    Args:
        metric: the real one.
        on_batch: called with the decoded texts, and the images [B, C, H, W] as the model got them.
        on_end: called before the numbers of all batches are computed.
    """

    def __init__(
        self,
        metric: Any,
        on_batch: Callable[[Any, np.ndarray], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(metric)
        self._on_batch = on_batch
        self._on_end = on_end

    def __call__(self, decoded: Any, batch: Any = None, **kwargs: Any) -> Any:
        """Pass a batch on."""
        images = images_of(batch) if isinstance(batch, Sequence) and len(batch) else None
        if isinstance(images, np.ndarray) and images.ndim == 4:
            self._on_batch(decoded, images)
        return self.real(decoded, batch, **kwargs)

    def get_metric(self) -> Any:
        """Return the metric's own values."""
        self._on_end()
        return self.real.get_metric()


class EvalListener:
    """The host's log writer, which reports only evaluations.

    The host also gives it medians of the training losses, but hooks read the losses themselves.
    """

    def __init__(self, on_eval: Callable[[Mapping[str, float]], object]) -> None:
        self._on_eval = on_eval

    def log_metrics(self, metrics: Mapping[str, float], prefix: str | None = None, step: int = 0) -> None:
        """Report an evaluation."""
        if prefix == "EVAL" and not all(name.startswith("best_") for name in metrics):
            self._on_eval(metrics)

    def log_model(self, is_best: bool = False, prefix: str = "", metadata: Any = None) -> None:
        """Do nothing, since checkpoints are reported where they are written."""

    def close(self) -> None:
        """Do nothing, since hooks close what they opened."""


class OptimizerProxy(Proxy):
    """The optimizer as the host calls it; ``clear_grad`` is the end of a step, with and without AMP.

    Args:
        optimizer: the real one.
        on_step: called with the learning rate at the end of a step.
        allows: returns True if the gradient may be applied.
        keeps: returns True at the end of a step if the gradient must not be cleared.
    """

    def __init__(
        self,
        optimizer: Any,
        on_step: Callable[[float], None],
        allows: Callable[[], bool] = lambda: True,
        keeps: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(optimizer)
        self._keeps = keeps
        self._on_step = on_step
        self.allows = allows

    def step(self) -> None:
        """Apply the gradient if that is allowed."""
        if self.allows():
            self.real.step()

    def clear_grad(self, set_to_zero: bool = False) -> None:
        """Release the gradients and end the step; inside a group the gradients add up.

        Paddle's default keeps gradients as zeros. They would fragment the memory that the next step uses again.
        """
        if not self._keeps():
            self.real.clear_grad(set_to_zero=set_to_zero)
        self._on_step(float(self.real.get_lr()))


class ScalerProxy(Proxy):
    """The AMP scaler as the host calls it. It passes the real optimizer to Paddle's scaler, and counts overflows.

    Attributes:
        skipped: steps that changed no weights, because their gradients overflowed.
        skipped_in_a_row: number of the last steps in a row that changed no weights.
    """

    skipped = skipped_in_a_row = 0

    def minimize(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the real ``minimize`` with the real optimizer if that is allowed. Count overflows, and warn of them."""
        result = None
        if not isinstance(optimizer, OptimizerProxy) or optimizer.allows():
            result = self.real.minimize(getattr(optimizer, "real", optimizer), *args, **kwargs)
            self._count()
        for loss in args:
            # The host keeps the scaled loss until after the next forward pass, and would keep its graph with it.
            loss.detach_()
        return result

    def _count(self) -> None:
        if not getattr(self.real, "_found_inf", False):
            self.skipped_in_a_row = 0
            return
        self.skipped += 1
        self.skipped_in_a_row += 1
        if self.skipped == 1:
            LOG.info(
                "mixed precision: the gradients of this step overflowed, so it changed no weights. With a loss "
                "scale that adapts (Global.use_dynamic_loss_scaling) this happens now and then."
            )
        if self.skipped_in_a_row % _MANY == 0:
            LOG.warning(
                "mixed precision: the gradients of %d steps in a row overflowed; nothing is learned. Lower "
                "Global.scale_loss, set Global.use_dynamic_loss_scaling: true, or use Global.amp_dtype: bfloat16.",
                self.skipped_in_a_row,
            )


class BeforeForward:
    """Copy and restore what a forward pass changes: BatchNorm's statistics, other buffers, the state of the loss."""

    def __init__(self, network: nn.Layer, loss: Callable[..., Any]) -> None:
        self._loss = loss
        statistics = {name: p for name, p in network.named_parameters() if name.endswith(STATISTICS)}
        self._of_network = {**statistics, **dict(network.named_buffers())}
        self._kept: list[dict[str, Tensor]] = []

    def _tensors(self) -> list[dict[str, Tensor]]:
        """Return those of the network, and those of the loss, by name."""
        return [self._of_network, self._loss.state_dict() if isinstance(self._loss, nn.Layer) else {}]

    @paddle.no_grad()
    def keep(self) -> None:
        """Make the copy before a forward pass."""
        # Paddle's LSTM has a buffer without memory until it drops out.
        self._kept = [
            {name: tensor.clone() for name, tensor in part.items() if tensor._is_initialized()}
            for part in self._tensors()
        ]

    def restore(self) -> None:
        """Put the copy back after a forward pass."""
        for kept, tensors in zip(self._kept, self._tensors(), strict=True):
            put_back(kept, tensors)

    def arrays(self) -> list[dict[str, np.ndarray]]:
        """Return the copy: that of the network, and that of the loss, by name."""
        return [{name: tensor.numpy() for name, tensor in part.items()} for part in self._kept]


class OptimizerStep:
    """Decide in each step whether the optimizer applies the gradient, and what to do after a bad value.

    Args:
        context: the context of the run.
        network: without a wrapper.
        training: what it trains with.

    Attributes:
        reading: the values of the last step.
        losses: the loss dict of the last step, detached.
        images: number of images in the last batch.
        group: the batches of one step of the optimizer, ``Global.accumulate``.
    """

    def __init__(self, context: RunContext, network: nn.Layer, training: Training) -> None:
        self._scaler = training.amp.scaler
        loss = training.loss
        self._meter = StepMeter(network, loss, limits_of(context.config))
        self._settings = settings = context.config.settings
        usual = batch_size(context.config) or 1
        self.group = Group(settings.accumulate, dict(self._meter.trained), training.unreached, usual)
        self._incidents = Incidents(context, training, self._meter)
        skips = settings.nonfinite == "skip"
        self._before = BeforeForward(network, loss) if skips else None
        # A run is resumed at the start of a group, whose batches change BatchNorm before the optimizer steps.
        self._before_group = BeforeForward(network, loss) if settings.accumulate > 1 else None
        self._watch = AnomalyWatch(network, loss, active=settings.detect_anomaly, compiled=settings.to_static)
        self._steps_done = self._good_step = training.start.global_step
        self._skipped_in_a_row = 0
        # Outputs, batch and loss of the step; the host keeps them too, see _let_go.
        self._held: tuple[Any, ...] = ()
        self.reading = StepReading()
        self.losses: Mapping[str, Any] = {}
        self.images = 0

    @property
    def is_good(self) -> bool:
        """True if neither the last step, nor an earlier one of its group, had a bad value."""
        return not self.group.is_bad

    def begin(self, steps_done: int, ends_epoch: bool) -> None:
        """Prepare the step after ``steps_done`` steps, before its batch is read."""
        self._steps_done = steps_done
        self._let_go()
        self._meter.begin()
        if self._before is not None:
            self._before.keep()
        if self._before_group is not None and not self.group.is_open:
            self._before_group.keep()
        self.group.begin_batch(ends_epoch)
        self._watch.on("the loss")

    def before_group(self) -> list[dict[str, np.ndarray]]:
        """Return what forward passes change, as it was before the open group: of the network, and of the loss, by name.

        Both are empty outside a group.
        """
        if self._before_group is None or not self.group.is_open:
            return [{}, {}]
        return self._before_group.arrays()

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
            StopRun: a value is bad, and the run must stop.
        """
        self._watch.off()
        scaler = self._scaler
        scaling = scaler is not None and getattr(scaler, "_enable", False)
        reading = self._meter.read(scaler._scale if scaling else None)
        factor = self.group.mean_factor()
        self.reading = replace(reading, grad_norm=reading.grad_norm * factor)
        is_good = self.reading.is_good
        if not is_good:  # a bad gradient is bad in every process, so they may wait for each other
            forward_is_bad = team().highest(int(bool(self.reading.bad))) > 0
            is_good = scaling and not forward_is_bad  # the scaler handles an overflow of the gradient
        if is_good:
            self._good_step = self._steps_done + 1
        else:
            self._handle_bad(elsewhere=forward_is_bad and not self.reading.bad)
            self.group.is_bad = True
        if not self._settings.cal_metric_during_train:  # with it, the host still reads the outputs
            self._let_go()
        if self.group.is_open or self.group.is_bad:
            return False
        self._skipped_in_a_row = 0
        self.group.scale(factor)
        self.group.fill()
        return True

    def _let_go(self) -> None:
        """Free the outputs and the graph of a step, which the host keeps until after the next forward pass."""
        if self._held:
            predictions, _, total = self._held
            _empty(predictions)
            total.detach_()
        self._held = ()

    def keeps_gradient(self) -> bool:
        """Return True if the gradient of the next batch is added to that of this one."""
        return self.group.is_open and not self.group.is_bad

    def anomaly(self, error: BaseException) -> str | None:
        """Switch ``Global.detect_anomaly`` off. If it raised ``error``, return what it has found."""
        self._watch.off()
        return self._watch.describe(error)

    def _handle_bad(self, elsewhere: bool) -> None:
        predictions, batch, _ = self._held
        step = self._steps_done + 1
        incident = self._incidents.report(
            self.reading, step, self._good_step, predictions, batch, elsewhere=elsewhere
        )
        same_group = self.group.is_bad
        if self._before is not None and (
            same_group or self._skipped_in_a_row < self._settings.nonfinite_limit
        ):
            self._skipped_in_a_row += not same_group
            self._before.restore()
            self._meter.variances = None
            LOG.warning("step %d is skipped (%d in a row)", step, self._skipped_in_a_row)
        else:
            raise StopRun(incident.summary, None, "nonfinite", save_latest=False)


def _empty(outputs: Any) -> None:
    """Remove all tensors from nested dicts and lists."""
    if type(outputs) in (dict, list):
        for each in outputs.values() if isinstance(outputs, dict) else outputs:
            _empty(each)
        outputs.clear()


class Group:
    """The batches whose gradients add up to one step of the optimizer. A group ends with its epoch.

    Each batch counts by its number of samples. So, with losses that are means over samples, the step equals that of the
    joined batch of all processes. Without accumulation (``size`` 1), loss and gradient are PaddleOCR's.

    Args:
        size: number of batches in a group; the last group of an epoch may be shorter.
        parameters: the trained parameters by name.
        unreached: names of the parameters without a gradient before a resume; None for all.
        usual: number of samples of a batch whose loss is not scaled, which keeps it in the range of mixed precision.
            The same in all processes, since their gradients are averaged after each batch.

    Attributes:
        unreached: names of the parameters that have had no gradient yet.
        is_open: True if more batches of the group follow.
        is_bad: True if a batch of the group had a bad value, so the optimizer does not step at its end.
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
        """Count one more batch in this group, or in a new one."""
        if not self.is_open:
            self._batches = self._samples = 0
            self.is_bad = False
        self._batches += 1
        self.is_open = self._batches < self._size and not ends_epoch

    def weight(self, samples: int) -> float:
        """Return the factor of this batch's loss, and add its number of samples."""
        self._samples += samples
        return samples / self._usual if self._size > 1 else 1.0

    def mean_factor(self) -> float:
        """Return the factor that turns the summed gradients into the gradient of the joined batch.

        At the end of a group, all processes call this and add up their samples. Inside a group, it assumes that the
        others have as many samples as this one.
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
        """Give a gradient of zeros to a parameter without a gradient that had one in an earlier step.

        PaddleOCR sets gradients to zero after a step, so the optimizer still decays such a parameter and its moments.
        Here gradients are released, and the optimizer would skip a parameter without one.
        """
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                self.unreached.discard(name)
            elif name not in self.unreached:
                parameter.grad = paddle.zeros_like(parameter)
