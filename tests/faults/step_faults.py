"""Faults of one step, which the check for bad values finds before the optimizer applies its gradient.

Each is planted before the second of three steps; tests/loop/test_nonfinite_runs.py shows what is left of such a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from faults import Plant, change_next_images, infinite_pixel, nan_loss, nan_weights
from planted import Fault, Finding, Place, said

from ppocr_ext.config import Config
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run

Plan = Callable[[Run], None]


def step_guard(config: Config, step: tuple[Plan, ...]) -> list[Finding]:
    """Train for an epoch in which each of these faults is planted, in the second step and after it."""
    config = config.with_values({"Global.epoch_num": 1})
    hooks = [Plant(fault, number) for number, fault in enumerate(step, start=2)]
    with said() as texts:
        outcome = train(config, hooks=hooks)
    if outcome.status == "finished":  # after six steps it reads nothing yet, of which the evaluation warns
        return [each for each in texts if each.level == "error"]
    return [Finding("error", outcome.status, "\n".join([outcome.reason, *(each.text for each in texts)]))]


def images(factor: float) -> Plan:
    """The next batch is this many times as bright."""
    return lambda run: change_next_images(run, lambda pixels: pixels.__imul__(np.float32(factor)))


def pixel(value: float) -> Plan:
    """One pixel of the next batch has this value."""
    return lambda run: change_next_images(run, lambda pixels: pixels.__setitem__((3, 0, 5, 5), value))


def next_loss(factor: float) -> Plan:
    """A part of the next loss is multiplied."""

    def plant(run: Run) -> None:
        losses = run.loss.losses
        real = losses["NRTRLoss"]

        def once(predicts: Any, batch: Any) -> dict[str, Any]:
            losses["NRTRLoss"] = real
            return {"loss": real(predicts, batch)["loss"] * factor}

        losses["NRTRLoss"] = once

    return plant


def next_gradient(factor: float) -> Plan:
    """The next gradient of the CTC classifier is multiplied; forward values are as they were."""

    def plant(run: Run) -> None:
        factors = [factor]  # Paddle crashes if a hook removes itself
        weight = run.network.head.ctc_head.fc.weight
        weight.register_hook(lambda gradient: gradient * factors.pop() if factors else gradient)

    return plant


def bad(name: str, plan: Plan | None, *names: str, **values: Any) -> Fault:
    steps = () if plan is None else (plan,)
    return Fault(name, step_guard, "nonfinite", values, {}, names, step=(steps, ()))


FAULTS = (
    bad("an infinite pixel", infinite_pixel, "image"),
    bad("a batch that is 1e6 times too bright", images(1e6), "image", "100"),
    bad("a loss that is NaN", nan_loss, "NRTRLoss"),
    bad("an infinite gradient", next_gradient(np.inf), "gradient"),
    bad("weights that became NaN", nan_weights, "head.ctc_head.fc.weight"),
)
TWINS = (pixel(99.0), images(1.5), next_loss(3.0), next_gradient(0.1))


def twins(place: Place) -> list[Finding]:
    """Train with all of them, each in a step of its own."""
    return step_guard(
        place.config(
            "student", **{"Train.loader.batch_size_per_card": 4, "Optimizer.lr.learning_rate": 0.001}
        ),
        TWINS,
    )
