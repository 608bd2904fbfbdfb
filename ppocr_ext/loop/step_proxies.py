"""The loss, the optimizer and the scaler of mixed precision as the host's loop receives them.

The host calls ``loss(preds, batch)``, ``optimizer.step()`` or ``scaler.scale/minimize``, and
``optimizer.clear_grad()``. The proxies pass these calls on, and ask before anything changes the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ppocr_ext.loop.proxies import Proxy
from ppocr_ext.messages import LOG

_MANY = 20  # steps in a row without effect: no longer the search for a scale


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
