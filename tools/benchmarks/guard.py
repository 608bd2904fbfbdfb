"""What the check for bad values, the copies for skip and rollback, an average and the monitors add to a training step.

The same distillation step is taken in turns without the check, with it, and with it and the copy for `skip`. A
difference of two such steps is smaller than the noise of most machines, so the seconds inside the check and the copies
are measured as well: on a CPU, where an operation has ended when its call returns, they are what is added. Seconds on a
CPU are those that the process computed, which other programs change little.
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

from benchmarks.step import optimizer_of, setting
from benchmarks.table import machine, markdown, threads
from ppocr_ext.loop.events import Position, StepDone
from ppocr_ext.loop.hooks.collapse_watch import LEAST_EVERY
from ppocr_ext.loop.hooks.ema import Ema
from ppocr_ext.loop.last_good import BeforeForward, tensors_of
from ppocr_ext.loop.monitors.measurements import measure_model
from ppocr_ext.loop.step_values import Limits, StepMeter, head_outputs
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model
from ppocr_ext.run.device import tune_cpu
from ppocr_ext.run.model_setup import restrict_outputs
from ppocr_ext.run.run import Run

MOST = {"the check": 0.01, "monitors: a tenth of it": 0.02}  # of a step
BARE, CHECK, SKIP = "step", "step with the check", "step with the check and skip's copy"


@dataclass(frozen=True)
class GuardCosts:
    """Seconds by what was measured, and the setting.

    Attributes:
        setting: what was run, and where.
        steps: of a whole step, by kind.
        inside: of the check, of skip's copy, of rollback's copy and of the monitors alone.
    """

    setting: str
    steps: dict[str, list[float]]
    inside: dict[str, list[float]]

    def share(self, name: str) -> float:
        """Median seconds inside over the median step."""
        return statistics.median(self.inside[name]) / statistics.median(self.steps[BARE])

    @property
    def agrees(self) -> bool:
        """True if the check takes at most 1 % of a step, and the monitors 2 %."""
        return all(self.share(name) <= most for name, most in MOST.items())

    def to_markdown(self) -> str:
        """Two tables: whole steps, and what is inside."""
        bare = statistics.median(self.steps[BARE])
        whole = [
            [
                name,
                f"{statistics.median(times):.4f}",
                f"{min(times):.4f}",
                f"{statistics.median(times) / bare:.3f}",
            ]
            for name, times in self.steps.items()
        ]
        parts = [
            [name, f"{1e3 * statistics.median(times):.3f}", f"{100 * self.share(name):.2f} %"]
            for name, times in self.inside.items()
        ]
        first = markdown(["in turns", "seconds (median)", "seconds (best)", "ratio"], whole)
        second = markdown(["inside", "milliseconds (median)", "share of a step"], parts)
        return f"{self.setting}\n\n{first}\n\n{second}"


def measure_guard(size: str, batch: int, rounds: int = 20) -> GuardCosts:
    """Measure it.

    Args:
        size: ``"tiny"`` (the quickstart's models) or ``"full"`` (SVTRv2 teacher, RepSVTR student).
        batch: images of it.
        rounds: measured rounds after two to warm up.
    """
    if paddle.get_device() == "cpu":
        tune_cpu()
    config, given, described = setting(size, batch, None)
    paddle.seed(0)
    model = build_model(config.at("Architecture").thaw())
    loss = build_loss(config.at("Loss").thaw())
    restrict_outputs(model, loss.required_outputs(), config)
    step = _Step(model, loss, optimizer_of(config, model), given)
    kinds: dict[str, Callable[[], None]] = {
        BARE: lambda: step.take(False, False),
        CHECK: lambda: step.take(True, False),
        SKIP: lambda: step.take(True, True),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(rounds + 2):
        if turn == 2:
            step.inside = {part: [] for part in step.inside}
        for kind, take in kinds.items():
            passed, _ = seconds_of(take)
            if turn > 1:
                seconds[kind].append(passed)
        step.copy_all()
        step.average()
        step.monitor()
    described += (
        f", {threads()}, Paddle {paddle.__version__} on {paddle.get_device()}, {machine()}, {rounds} rounds"
    )
    return GuardCosts(described, seconds, step.inside)


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
        self.inside: dict[str, list[float]] = {
            "the check": [],
            "skip: copy before each step": [],
            "rollback: copy in memory, a hundredth of it": [],
            "Global.ema: the average": [],
            "monitors: a tenth of it": [],
        }
        self._average = Ema(0.9998)
        run = SimpleNamespace(network=model, frozen=model.frozen, optimizer=optimizer, hook_states={})
        self._average.on_start(cast(Run, run), Position())
        self._outputs: dict[str, Any] = {}

    def take(self, checks: bool, copies: bool) -> None:
        model, batch = self._model, self._batch
        model.train()
        spent = 0.0
        if copies:
            self._timed("skip: copy before each step", self._before.keep)
        if checks:
            spent += seconds_of(self._meter.begin)[0]
        predictions = model(batch[0], data=batch[1:])
        self._outputs = {name: value.detach() for name, value in head_outputs(predictions, model)}
        losses = self._loss(predictions, batch)
        total = losses["loss"]
        if checks:
            passed, factor = seconds_of(lambda: self._meter.forward(predictions, batch, losses, 100))
            spent += passed
            total = total * factor
        total.backward()
        if checks:
            spent += seconds_of(self._meter.read)[0]
            self.inside["the check"].append(spent)
        self._optimizer.step()
        self._optimizer.clear_grad()
        for value in losses.values():  # as the host does
            float(value)

    def copy_all(self) -> None:
        """Copy what a rollback may need: once in 100 steps."""
        name = "rollback: copy in memory, a hundredth of it"
        passed, _ = seconds_of(
            lambda: [value.clone() for value in tensors_of(self._model, self._optimizer).values()]
        )
        self.inside[name].append(passed / 100)

    def average(self) -> None:
        """Average the weights, as after each step."""
        done = StepDone(Position(), {}, 0.0, 1)
        self._timed("Global.ema: the average", lambda: self._average.on_step(done))

    def monitor(self) -> None:
        """Measure the outputs of the last step as the monitors do: once in 10 steps at most."""
        measure = partial(measure_model, self._outputs, "Student", self._batch[1])
        self.inside["monitors: a tenth of it"].append(seconds_of(measure)[0] / LEAST_EVERY)

    def _timed(self, name: str, work: Callable[[], Any]) -> None:
        self.inside[name].append(seconds_of(work)[0])
