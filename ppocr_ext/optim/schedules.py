"""Learning-rate schedules by PaddleOCR's names, on Paddle's own classes; rates change from step to step.

Common arguments:
    learning_rate: the rate before any decay.
    epochs: epochs of the run (given by the program).
    step_each_epoch: steps of an epoch (given by the program).
    warmup_epoch: epochs in which the rate rises evenly from 0; the schedule starts after them, and keeps its
        length, so that a run of ``epochs`` epochs ends before the schedule does.
    last_epoch: the last step done, -1 for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from paddle.optimizer import lr

from ppocr_ext.optim.annealing import CyclicalCosineDecay, TwoStepCosineDecay
from ppocr_ext.registry import SCHEDULES

Rate: TypeAlias = lr.LRScheduler | float

# OneCycle starts at max_lr / START and ends at a further END-th of that (PaddleOCR's constants).
_ONE_CYCLE_START = 25.0
_ONE_CYCLE_END = 1e4
_ONE_CYCLE_RISE = 0.3
# TwoStepCosine's first cosine, whatever the configuration says.
_TWO_STEP_EPOCHS = 200


def _warmed_up(
    rate: Rate, peak: float, warmup_epoch: float, step_each_epoch: int, last_epoch: int, start_lr: float = 0.0
) -> Rate:
    """``rate`` after a rise from ``start_lr`` to ``peak``."""
    steps = round(warmup_epoch * step_each_epoch)
    if steps <= 0:
        return rate
    return lr.LinearWarmup(rate, steps, start_lr=start_lr, end_lr=peak, last_epoch=last_epoch)


@SCHEDULES.register("Const")
def const(learning_rate: float, step_each_epoch: int, warmup_epoch: float = 0, last_epoch: int = -1) -> Rate:
    """The same rate always: without warm-up a float, no scheduler."""
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
    """Polynomial decay to ``end_lr`` over all steps; ``power`` 1 is a straight line."""
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
    """Half a cosine down to ``eta_min`` over all steps."""
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
    """A rise from ``start_lr`` over ``warmup_steps`` steps, then half a cosine down to ``min_lr``."""
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
    """Times ``gamma`` every ``step_size`` epochs."""
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
    """Times ``gamma`` at each epoch of ``milestones``."""
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
    """``values[0]`` until the epoch ``decay_epochs[0]``, then ``values[1]``, …: one value more than epochs.

    Raises:
        ValueError: there is not one value more than epochs.
    """
    if len(values) != len(decay_epochs) + 1:
        raise ValueError(
            f"`values` needs one entry more than `decay_epochs`, but has {len(values)} to {len(decay_epochs)}"
        )
    boundaries = [round(step_each_epoch * epoch) for epoch in decay_epochs]
    decay = lr.PiecewiseDecay(boundaries, list(values), last_epoch)
    return _warmed_up(decay, values[0], warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("CyclicalCosine")
def cyclical_cosine(
    learning_rate: float, step_each_epoch: int, cycle: float, warmup_epoch: float = 0, last_epoch: int = -1
) -> Rate:
    """Half a cosine to 0 over ``cycle`` epochs, again and again."""
    decay = CyclicalCosineDecay(learning_rate, round(cycle * step_each_epoch), last_epoch)
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("OneCycle")
def one_cycle(
    max_lr: float,
    epochs: int,
    step_each_epoch: int,
    anneal_strategy: str = "cos",
    three_phase: bool = False,
    warmup_epoch: float = 0,
    last_epoch: int = -1,
) -> Rate:
    """Up from ``max_lr`` / 25 in 30 % of the steps, then down to ``max_lr`` / 250000.

    Smith and Topin, https://arxiv.org/abs/1708.07120.

    Args beyond the common ones:
        max_lr: the highest rate.
        anneal_strategy: ``cos`` or ``linear``.
        three_phase: down to the first rate in as many steps as up, then further down.
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
def two_step_cosine(
    learning_rate: float, step_each_epoch: int, epochs: int, warmup_epoch: float = 0, last_epoch: int = -1
) -> Rate:
    """Half a cosine over 200 epochs, then the rest of one over all epochs: see :class:`TwoStepCosineDecay`."""
    decay = TwoStepCosineDecay(
        learning_rate, step_each_epoch * _TWO_STEP_EPOCHS, step_each_epoch * epochs, last_epoch
    )
    return _warmed_up(decay, learning_rate, warmup_epoch, step_each_epoch, last_epoch)


@SCHEDULES.register("DecayLearningRate")
def decay_learning_rate(learning_rate: float, step_each_epoch: int, epochs: int, factor: float = 0.9) -> Rate:
    """Polynomial decay of power ``factor`` to 0. Kept for parity: an ``end_lr`` is not looked at."""
    return lr.PolynomialDecay(learning_rate, step_each_epoch * epochs, end_lr=0.0, power=factor)
