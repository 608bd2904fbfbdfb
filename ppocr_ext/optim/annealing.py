"""Cosine schedules that Paddle lacks, or has in a form that a resumed run cannot continue."""

from __future__ import annotations

import math

from paddle.optimizer.lr import LRScheduler


def _cosine(position: int, length: int) -> float:
    """From 1 at position 0 down to 0 at ``length``, and up again."""
    return (1.0 + math.cos(math.pi * position / length)) / 2.0


class CyclicalCosineDecay(LRScheduler):
    """A cosine from the full rate to 0 that starts anew every ``cycle`` steps (https://arxiv.org/abs/2012.12645).

    Paddle's CosineAnnealingWarmRestarts gives the same rates, but keeps its place in the cycle where
    ``state_dict`` does not look: after a resume it starts at the top.

    Args:
        learning_rate: the full rate.
        cycle: steps of one cycle.
        last_epoch: the last step done, -1 for none.
    """

    def __init__(self, learning_rate: float, cycle: int, last_epoch: int = -1) -> None:
        if cycle < 1:
            raise ValueError(f"a cycle must have at least one step, but has {cycle}")
        self.cycle = cycle
        super().__init__(learning_rate, last_epoch)

    def get_lr(self) -> float:
        """The rate of step ``last_epoch``."""
        return self.base_lr * _cosine(self.last_epoch % self.cycle, self.cycle)


class TwoStepCosineDecay(LRScheduler):
    """A cosine over ``first`` steps, then the rest of a cosine over ``second`` steps, as PaddleOCR has it.

    Kept for parity: stepped one by one (no warm-up) the rate stays at 0 once the first cosine has reached it,
    since each rate is computed from the one before; stepped to a given step, as LinearWarmup does,
    it jumps up to the second cosine.

    Args:
        learning_rate: the full rate.
        first: steps of the first cosine.
        second: steps of the second, counted from step 0 too.
        last_epoch: the last step done, -1 for none.
    """

    def __init__(self, learning_rate: float, first: int, second: int, last_epoch: int = -1) -> None:
        if first < 1 or second < 1:
            raise ValueError(f"both cosines must have at least one step, but have {first} and {second}")
        self.first = first
        self.second = second
        super().__init__(learning_rate, last_epoch)

    def get_lr(self) -> float:
        """The rate of step ``last_epoch`` from the rate in force, that of the step before."""
        if self.last_epoch == 0:
            return self.base_lr
        length = self._length()
        now, before = _cosine(self.last_epoch, length), _cosine(self.last_epoch - 1, length)
        return self.last_lr * now / before if before > 0.0 else self.base_lr * now

    def _get_closed_form_lr(self) -> float:
        """The rate of step ``last_epoch``; Paddle's ``step(epoch)`` asks for it by this name."""
        return self.base_lr * _cosine(self.last_epoch, self._length())

    def _length(self) -> int:
        return self.first if self.last_epoch <= self.first else self.second
