"""Several batches for one step of the optimizer: ``Global.accumulate``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import paddle

from ppocr_ext.loop.proxies import Proxy
from ppocr_ext.run.team import team


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
        self._size, self._parameters, self._usual = size, parameters, usual
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
        """Return what turns the sum of the gradients so far into the gradient of the joined batch.

        At the group's end it is called in all processes at once; before, this process's samples stand for the others'.
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


class ScheduleProxy(Proxy):
    """The schedule as the host calls it, after each batch; the real one steps once per group."""

    def __init__(self, schedule: Any, group: Group) -> None:
        super().__init__(schedule)
        self._group = group

    def step(self) -> None:
        """Go on to the rate of the next step, if the group has ended."""
        if not self._group.is_open:
            self.real.step()
