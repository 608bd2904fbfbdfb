"""Proxies that the host's loop receives in place of our objects, so that its calls become events.

The host calls ``iter(loader)``, ``loss(preds, batch)``, ``optimizer.step()`` or ``scaler.scale/minimize``,
``optimizer.clear_grad()``, ``schedule.step()`` and ``log_writer.log_metrics``: these names are PaddleOCR's interface. A
proxy passes the call on, and reports it to :mod:`ppocr_ext.loop.adapter`, which is asked before anything changes the
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ppocr_ext.data.batches import images_of
from ppocr_ext.messages import LOG

_MANY = 20  # steps in a row without effect: no longer the search for a scale


class Proxy:
    """Base of the proxies: it passes every attribute that a proxy does not define on to the real object."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class EvalLoader(Proxy):
    """The valid loader as the host sees it; ``on_start`` is called before an evaluation, ``on_batch`` in each step."""

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
        on_batch: called with what was decoded, and the images [B, C, H, W] as the model saw them.
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
    """The host's log writer: it reports evaluations, and nothing else.

    The host gives its writer window medians of the training losses; hooks read the losses
    themselves instead.
    """

    def __init__(self, on_eval: Callable[[Mapping[str, float]], object]) -> None:
        self._on_eval = on_eval

    def log_metrics(self, metrics: Mapping[str, float], prefix: str | None = None, step: int = 0) -> None:
        """Report an evaluation."""
        if prefix == "EVAL" and not all(name.startswith("best_") for name in metrics):
            self._on_eval(metrics)

    def log_model(self, is_best: bool = False, prefix: str = "", metadata: Any = None) -> None:
        """Do nothing: checkpoints are reported where they are written."""

    def close(self) -> None:
        """Do nothing: hooks close what they opened."""


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
        keeps: asked at the end of a step; if it returns True, the gradient is not cleared.
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
        """Apply the gradient, if that is allowed."""
        if self.allows():
            self.real.step()

    def clear_grad(self, set_to_zero: bool = False) -> None:
        """Release the gradients, which ends the step; inside a group they add up.

        Kept as zeros, Paddle's default, they would lie between the activations of the next step, whose memory is then
        not used again as a whole.
        """
        if not self._keeps():
            self.real.clear_grad(set_to_zero=set_to_zero)
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
        result = None
        if not isinstance(optimizer, OptimizerProxy) or optimizer.allows():
            result = self.real.minimize(getattr(optimizer, "real", optimizer), *args, **kwargs)
            self._count()
        for loss in args:
            loss.detach_()  # the host holds the scaled loss, and its graph, until the next forward pass has ended
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


class ScheduleProxy(Proxy):
    """The schedule as the host calls it, after each batch; the real one steps once per group."""

    def __init__(self, schedule: Any, is_open: Callable[[], bool]) -> None:
        super().__init__(schedule)
        self._is_open = is_open

    def step(self) -> None:
        """Go on to the rate of the next step, if the group has ended."""
        if not self._is_open():
            self.real.step()
