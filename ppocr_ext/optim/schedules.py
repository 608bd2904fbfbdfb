"""Build learning-rate schedules by PaddleOCR's names, on Paddle's own classes; rates change at each step.

Common arguments:
    learning_rate: the rate before any decay.
    epochs: epochs of the run (given by the program).
    step_each_epoch: steps of an epoch (given by the program).
    warmup_epoch: epochs in which the rate rises linearly from 0. The schedule starts after them and keeps its length,
        so that a run of ``epochs`` epochs ends before the schedule does.
    last_epoch: the last step done, -1 for none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from paddle.optimizer import lr

from ppocr_ext.registry import SCHEDULES

Rate: TypeAlias = lr.LRScheduler | float

# PaddleOCR's constants: OneCycle starts at max_lr / START, and ends at max_lr / START / END.
_ONE_CYCLE_START = 25.0
_ONE_CYCLE_END = 1e4
_ONE_CYCLE_RISE = 0.3
# Epochs of TwoStepCosine's first cosine. No key changes it, as in PaddleOCR.
_TWO_STEP_EPOCHS = 200


def _cosine(position: int, length: int) -> float:
    """Return a value that falls from 1 at position 0 to 0 at ``length``, and then rises again."""
    return (1.0 + math.cos(math.pi * position / length)) / 2.0


class CyclicalCosineDecay(lr.LRScheduler):
    """Repeat a cosine from the full rate to 0 every ``cycle`` steps (https://arxiv.org/abs/2012.12645).

    Paddle's CosineAnnealingWarmRestarts gives the same rates, but its ``state_dict`` lacks the position in the cycle,
    so it starts at the full rate after a resume.

    Args:
        learning_rate: the full rate.
        cycle: steps of one cycle.
        last_epoch: the last step done, -1 for none.
    """

    def __init__(self, learning_rate: float, cycle: int, last_epoch: int = -1) -> None:
        if cycle < 1:
            raise ValueError(f"a cycle needs at least one step (found {cycle})")
        self.cycle = cycle
        super().__init__(learning_rate, last_epoch)

    def get_lr(self) -> float:
        """Return the rate of step ``last_epoch``."""
        return self.base_lr * _cosine(self.last_epoch % self.cycle, self.cycle)


class TwoStepCosineDecay(lr.LRScheduler):
    """Follow a cosine over ``first`` steps, then the rest of a cosine over ``second`` steps, as in PaddleOCR.

    Kept for parity: each rate is computed from the previous one, so without warm-up the rate stays at 0 after the first
    cosine has reached 0. With warm-up (LinearWarmup steps to a given step), it jumps to the second cosine.

    Args:
        learning_rate: the full rate.
        first: steps of the first cosine.
        second: steps of the second cosine, also counted from step 0.
        last_epoch: the last step done, -1 for none.
    """

    def __init__(self, learning_rate: float, first: int, second: int, last_epoch: int = -1) -> None:
        if first < 1 or second < 1:
            raise ValueError(f"both cosines need at least one step (found {first} and {second})")
        self.first = first
        self.second = second
        super().__init__(learning_rate, last_epoch)

    def get_lr(self) -> float:
        """Return the rate of step ``last_epoch``, computed from the previous rate."""
        if self.last_epoch == 0:
            return self.base_lr
        length = self._length()
        now = _cosine(self.last_epoch, length)
        before = _cosine(self.last_epoch - 1, length)
        return self.last_lr * now / before if before > 0.0 else self.base_lr * now

    def _get_closed_form_lr(self) -> float:
        """Return the rate of step ``last_epoch``; Paddle's ``step(epoch)`` calls this method."""
        return self.base_lr * _cosine(self.last_epoch, self._length())

    def _length(self) -> int:
        return self.first if self.last_epoch <= self.first else self.second


def _warmed_up(
    rate: Rate, peak: float, warmup_epoch: float, step_each_epoch: int, last_epoch: int, start_lr: float = 0.0
) -> Rate:
    """Return ``rate`` after a rise from ``start_lr`` to ``peak``."""
    steps = round(warmup_epoch * step_each_epoch)
    if steps <= 0:
        return rate
    return lr.LinearWarmup(rate, steps, start_lr=start_lr, end_lr=peak, last_epoch=last_epoch)


@SCHEDULES.register("Const")
def const(learning_rate: float, step_each_epoch: int, warmup_epoch: float = 0, last_epoch: int = -1) -> Rate:
    """Keep the same rate, which without warm-up is a float, not a scheduler."""
    return _warmed_up(float(learning_rate), learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("Linear")
def linear(
    learning_rate: float,
    epochs: int,
    step_each_epoch: int,
    end_lr: float = 0.0,
    power: float = 1.0,
    warmup_epoch: float = 0,
    last_epoch: int = -1,
) -> Rate:
    """Decay polynomially to ``end_lr`` over all steps; ``power`` 1 is a straight line."""
    decay = lr.PolynomialDecay(learning_rate, epochs * step_each_epoch, end_lr, power, last_epoch=last_epoch)
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("Cosine")
def cosine(
    learning_rate: float,
    step_each_epoch: int,
    epochs: int,
    warmup_epoch: float = 0,
    eta_min: float = 0,
    last_epoch: int = -1,
) -> Rate:
    """Follow half a cosine down to ``eta_min`` over all steps."""
    decay = lr.CosineAnnealingDecay(learning_rate, step_each_epoch * epochs, eta_min, last_epoch)
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("LinearWarmupCosine")
def linear_warmup_cosine(
    learning_rate: float,
    step_each_epoch: int,
    epochs: int,
    warmup_steps: int = 5000,
    start_lr: float = 1e-5,
    min_lr: float = 1e-8,
    last_epoch: int = -1,
) -> Rate:
    """Rise from ``start_lr`` over ``warmup_steps`` steps, then follow half a cosine down to ``min_lr``."""
    decay = lr.CosineAnnealingDecay(learning_rate, step_each_epoch * epochs, min_lr, last_epoch)
    return _warmed_up(decay, learning_rate, warmup_steps, 1, last_epoch, start_lr)


@SCHEDULES.register("Step")
def step(
    learning_rate: float,
    step_size: float,
    step_each_epoch: int,
    gamma: float,
    warmup_epoch: float = 0,
    last_epoch: int = -1,
) -> Rate:
    """Multiply by ``gamma`` every ``step_size`` epochs."""
    decay = lr.StepDecay(learning_rate, round(step_each_epoch * step_size), gamma, last_epoch)
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("MultiStepDecay")
def multi_step_decay(
    learning_rate: float,
    milestones: Sequence[float],
    step_each_epoch: int,
    gamma: float,
    warmup_epoch: float = 0,
    last_epoch: int = -1,
) -> Rate:
    """Multiply by ``gamma`` at each epoch of ``milestones``."""
    steps = [round(step_each_epoch * epoch) for epoch in milestones]
    decay = lr.MultiStepDecay(learning_rate, steps, gamma, last_epoch)
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("Piecewise")
def piecewise(
    step_each_epoch: int,
    decay_epochs: Sequence[float],
    values: Sequence[float],
    warmup_epoch: float = 0,
    last_epoch: int = -1,
) -> Rate:
    """Use ``values[0]`` until the epoch ``decay_epochs[0]``, then ``values[1]``, and so on.

    Raises:
        ValueError: ``values`` does not have one entry more than ``decay_epochs``.
    """
    if len(values) != len(decay_epochs) + 1:
        raise ValueError(
            f"`values` needs one entry more than `decay_epochs` (found {len(values)} and {len(decay_epochs)}). Fix: "
            f"add the rate from the last epoch on, or remove that epoch, which older Paddle ignored"
        )
    boundaries = [round(step_each_epoch * epoch) for epoch in decay_epochs]
    decay = lr.PiecewiseDecay(boundaries, list(values), last_epoch)
    return _warmed_up(decay, values[0], warmup_epoch, step_each_epoch, last_epoch)


# Three schedules have a second name: that of the class in PaddleOCR's `lr_scheduler.py`.
@SCHEDULES.register("CyclicalCosine")
@SCHEDULES.register("CyclicalCosineDecay")
def cyclical_cosine(
    learning_rate: float, step_each_epoch: int, cycle: float, warmup_epoch: float = 0, last_epoch: int = -1
) -> Rate:
    """Repeat half a cosine to 0 every ``cycle`` epochs."""
    decay = CyclicalCosineDecay(learning_rate, round(cycle * step_each_epoch), last_epoch)
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("OneCycle")
@SCHEDULES.register("OneCycleDecay")
def one_cycle(
    max_lr: float,
    epochs: int,
    step_each_epoch: int,
    anneal_strategy: str = "cos",
    three_phase: bool = False,
    warmup_epoch: float = 0,
    last_epoch: int = -1,
) -> Rate:
    """Rise from ``max_lr`` / 25 in 30 % of the steps, then fall to ``max_lr`` / 250000.

    Smith and Topin, https://arxiv.org/abs/1708.07120.

    Args beyond the common ones:
        max_lr: the highest rate.
        anneal_strategy: ``cos`` or ``linear``.
        three_phase: fall to the first rate in as many steps as the rise took, then fall further.
    """
    decay = lr.OneCycleLR(
        max_lr,
        epochs * step_each_epoch,
        divide_factor=_ONE_CYCLE_START,
        end_learning_rate=max_lr / _ONE_CYCLE_START / _ONE_CYCLE_END,
        phase_pct=_ONE_CYCLE_RISE,
        anneal_strategy=anneal_strategy,
        three_phase=three_phase,
        last_epoch=last_epoch,
    )
    return _warmed_up(decay, max_lr, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("TwoStepCosine")
@SCHEDULES.register("TwoStepCosineDecay")
def two_step_cosine(
    learning_rate: float, step_each_epoch: int, epochs: int, warmup_epoch: float = 0, last_epoch: int = -1
) -> Rate:
    """Follow half a cosine over 200 epochs, then the rest of one over all epochs: see :class:`TwoStepCosineDecay`."""
    decay = TwoStepCosineDecay(
        learning_rate, step_each_epoch * _TWO_STEP_EPOCHS, step_each_epoch * epochs, last_epoch
    )
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("DecayLearningRate")
def decay_learning_rate(learning_rate: float, step_each_epoch: int, epochs: int, factor: float = 0.9) -> Rate:
    """Decay polynomially with power ``factor`` to 0. Kept for parity: an ``end_lr`` is not used."""
    return lr.PolynomialDecay(learning_rate, step_each_epoch * epochs, end_lr=0.0, power=factor)
