"""What the check for bad values, the copy for skip, an average and the monitors add to a training step.

What they add is less than the noise of a whole step on most machines, so the seconds inside them are measured: on a
CPU, where an operation has ended when its call returns, they are what is added. Seconds on a CPU are those that the
process computed, which other programs change little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import paddle

from benchmarks.step import WARM_UP, optimizer_of, setting
from benchmarks.table import machine, report, threads
from ppocr_ext.loop.events import Position, StepDone
from ppocr_ext.loop.hooks.collapse_watch import LEAST_EVERY, measure_model
from ppocr_ext.loop.hooks.ema import Ema
from ppocr_ext.loop.step import BeforeForward
from ppocr_ext.loop.step_values import Limits, StepMeter, head_outputs
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model
from ppocr_ext.run.device import tune_cpu
from ppocr_ext.run.freezing import restrict_outputs
from ppocr_ext.run.run import Run

_CHECK, _SKIP = "the check", "skip: copy before each step"
_AVERAGE, _MONITORS = "Global.ema: the average", "monitors: a tenth of it"
MOST = {_CHECK: 0.01, _MONITORS: 0.02}  # of a step


@dataclass(frozen=True)
class GuardCosts:
    """Seconds by what was measured, and the setting.

    Attributes:
        setting: what was run, and where.
        steps: of a whole step without any of them.
        inside: of the check, of skip's copy, of the average and of the monitors alone.
    """

    setting: str
    steps: list[float]
    inside: dict[str, list[float]]

    def share(self, name: str) -> float:
        """Median seconds inside over the median step."""
        return statistics.median(self.inside[name]) / statistics.median(self.steps)

    @property
    def agrees(self) -> bool:
        """True if the check takes at most 1 % of a step, and the monitors 2 %."""
        return all(self.share(name) <= most for name, most in MOST.items())

    def to_markdown(self) -> str:
        """What is inside, as shares of a step."""
        parts = [
            [name, f"{1e3 * statistics.median(times):.3f}", f"{100 * self.share(name):.2f} %"]
            for name, times in self.inside.items()
        ]
        step = f"A step without them takes {statistics.median(self.steps):.4f} s (median)."
        return report(self.setting, step, (["inside", "milliseconds (median)", "share of a step"], parts))


def measure_guard(size: str, batch: int, rounds: int = 20) -> GuardCosts:
    """Measure it.

    Args:
        size: ``"tiny"`` (the quickstart's models) or ``"full"`` (SVTRv2 teacher, RepSVTR student).
        batch: images of it.
        rounds: measured ones, after those to warm up.
    """
    if paddle.get_device() == "cpu":
        tune_cpu()
    config, given, described = setting(size, batch, None)
    paddle.seed(0)
    model = build_model(config.at("Architecture").thaw())
    loss = build_loss(config.at("Loss").thaw())
    restrict_outputs(model, loss.required_outputs(), config)
    step = _Step(model, loss, optimizer_of(config, model), given)
    bare: list[float] = []
    for turn in range(rounds + WARM_UP):
        if turn == WARM_UP:
            step.inside, bare = {part: [] for part in step.inside}, []
        bare.append(seconds_of(lambda: step.take(guarded=False))[0])
        step.take(guarded=True)
        step.average()
        step.monitor()
    described += (
        f", {threads()}, Paddle {paddle.__version__} on {paddle.get_device()}, {machine()}, {rounds} rounds"
    )
    return GuardCosts(described, bare, step.inside)


def clock() -> float:
    """Return the seconds that this process has computed; on another device than a CPU, the time."""
    if paddle.get_device() == "cpu":
        return time.process_time()
    paddle.device.synchronize()
    return time.perf_counter()


def seconds_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that ``work`` took, and its result."""
    began = clock()
    result = work()
    return clock() - began, result


class _Step:
    """A training step as the host takes it, with or without the guard, that times what is inside."""

    def __init__(self, model: Any, loss: Any, optimizer: Any, batch: list[Any]) -> None:
        self._model, self._loss, self._optimizer, self._batch = model, loss, optimizer, batch
        self._meter = StepMeter(model, loss, Limits(100.0, 10000.0))
        self._before = BeforeForward(model, loss)
        parts = (_CHECK, _SKIP, _AVERAGE, _MONITORS)
        self.inside: dict[str, list[float]] = {part: [] for part in parts}
        self._average = Ema(0.9998)
        run = SimpleNamespace(network=model, frozen=model.frozen, optimizer=optimizer, hook_states={})
        self._average.on_start(cast(Run, run), Position())
        self._outputs: dict[str, Any] = {}

    def take(self, guarded: bool) -> None:
        """Do a step, with the check and the copy for skip or without."""
        model, batch = self._model, self._batch
        model.train()
        spent = 0.0
        if guarded:
            self.inside[_SKIP].append(seconds_of(self._before.keep)[0])
            spent += seconds_of(self._meter.begin)[0]
        predictions = model(batch[0], data=batch[1:])
        self._outputs = {name: value.detach() for name, value in head_outputs(predictions, model)}
        losses = self._loss(predictions, batch)
        total = losses["loss"]
        if guarded:
            passed, factor = seconds_of(lambda: self._meter.forward(predictions, batch, losses, 100))
            spent += passed
            total = total * factor
        total.backward()
        if guarded:
            self.inside[_CHECK].append(spent + seconds_of(self._meter.read)[0])
        self._optimizer.step()
        self._optimizer.clear_grad()
        for value in losses.values():  # as the host does
            float(value)

    def average(self) -> None:
        """Average the weights, as after each step."""
        done = StepDone(Position(), {}, 0.0, 1)
        self.inside[_AVERAGE].append(seconds_of(lambda: self._average.on_step(done))[0])

    def monitor(self) -> None:
        """Measure the outputs of the last step as the monitors do: once in 10 steps at most."""
        measure = partial(measure_model, self._outputs, "Student", self._batch[1])
        self.inside[_MONITORS].append(seconds_of(measure)[0] / LEAST_EVERY)
