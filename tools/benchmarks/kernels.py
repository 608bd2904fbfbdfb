"""What the student's own step costs by kind of operator, and what other forms of these operators would save.

The step is forward, backward and optimizer of the student alone. The forms were tried and left out of the package:
docs/performance.md says why. Here they take the place of Paddle's in a network that is already built.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn

from benchmarks.kernel_forms import forms, replacements
from benchmarks.limits import BACKWARD, OPERATIONS, multiply_adds, product_speed
from benchmarks.sizes import SIZES
from benchmarks.step import WARM_UP, Step, optimizer_of, setting
from benchmarks.table import Spread, processor, report, threads, verdict
from ppocr_ext.modeling import TRAIN, build_model
from ppocr_ext.run.device import tune_cpu

PADDLE = "Paddle's operators"
TOLERANCE = 1e-3
_KINDS = {  # of the profiler's names of operators, forward and backward; the first that fits
    "products and dense convolutions": r"(?i)^(conv2d|matmul)|_(conv2d|matmul)grad",
    "depthwise convolutions": r"(?i)depthwise",
    "GELU": r"(?i)gelu",
    "BatchNorm": r"(?i)batch_?norm",
    "LayerNorm": r"(?i)layer_?norm",
    "dropout": r"(?i)dropout",
    "optimizer and norm of the gradients": r"^(adam|multiply_ |squared_l2)",
    "sums and products of features": r"(?i)^(add|multiply) |_(add|multiply)grad",
    "other operators": r"",
}


@dataclass
class KernelCosts:
    """Seconds of a step by form, the shares of its operators, and the largest difference of a gradient.

    Attributes:
        setting: in words.
        operators: milliseconds of a step by kind of operator.
        limit: milliseconds that the products need at the speed of one large product.
        wall: seconds by form, a value for each round.
        cpu: CPU time of all threads, likewise.
        difference: of outputs and gradients, as a share of the largest value.
    """

    setting: str
    operators: dict[str, float]
    limit: float
    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)
    difference: float = 0.0

    @property
    def agrees(self) -> bool:
        """True if all forms give Paddle's outputs and gradients; NaN is no agreement."""
        return self.difference <= TOLERANCE

    def to_markdown(self) -> str:
        """Both tables."""
        whole = sum(self.operators.values())
        shares = [[name, f"{time:.0f}", f"{time / whole:.1%}"] for name, time in self.operators.items()]
        rows = []
        for name, times in self.wall.items():
            spread = Spread.of_ratios(times, self.wall[PADDLE])
            cpu = min(self.cpu[name]) / min(self.cpu[PADDLE])
            rows.append([name, f"{min(times):.3f}", f"{spread:.3f}", f"{cpu:.3f}"])
        head = ["form", "seconds of a step (best)", "of Paddle's (of rounds)", "CPU time of Paddle's (best)"]
        return report(
            self.setting,
            (["operators", "ms", "share"], shares),
            f"At the speed of one large product, the products would take {self.limit:.0f} ms.",
            (head, rows),
            f"Outputs and gradients {verdict(self.agrees)}: they differ by {self.difference:.1e} of the largest value "
            f"at most (limit {TOLERANCE:.0e})",
        )


def measure_kernels(size: str, batch: int = 8, rounds: int = 5) -> KernelCosts:
    """Measure a step of the student with each form.

    Args:
        size: ``"tiny"`` (the quickstart's student) or ``"full"`` (RepSVTR).
        batch: images of it.
        rounds: measured rounds after those to warm up; all forms are taken in turns.
    """
    if paddle.get_device() == "cpu":
        tune_cpu()
    config, given, described = setting(size, batch, SIZES[size][1])
    paddle.seed(0)
    student = build_model(config.at("Architecture").thaw()).Student
    student.train()
    step = _step(student, given, optimizer_of(config, student))
    kinds = {PADDLE: [], **forms()}
    costs = KernelCosts(
        f"{described}, {threads()}, Paddle {paddle.__version__}, {processor()}, {rounds} rounds", {}, 0.0
    )
    expected = _gradients(student, given)
    differences = []
    for replace in kinds.values():
        with replaced(student, replace):
            differences.append(_difference(_gradients(student, given), expected))
    costs.difference = float(np.max(differences))
    for turn in range(rounds + WARM_UP):
        for name, replace in kinds.items():
            with replaced(student, replace):
                wall, cpu = time.perf_counter(), time.process_time()
                step()
            if turn >= WARM_UP:
                costs.wall.setdefault(name, []).append(time.perf_counter() - wall)
                costs.cpu.setdefault(name, []).append(time.process_time() - cpu)
    costs.operators = min((_profile(step) for _ in range(3)), key=lambda each: sum(each.values()))
    forward = multiply_adds([student], partial(_forward, student, given))
    costs.limit = 1000.0 * OPERATIONS * (1 + BACKWARD) * forward / product_speed()
    return costs


@contextmanager
def replaced(network: nn.Layer, replace: list[Any]) -> Iterator[None]:
    """Let layers compute in other forms inside this context."""
    changed = [(layer, name) for layer, name, _ in replacements(network, replace)]
    before = [vars(layer).get(name) for layer, name in changed]
    for layer, name, value in list(replacements(network, replace)):
        object.__setattr__(layer, name, value)
    try:
        yield
    finally:
        for (layer, name), value in zip(changed, before, strict=True):
            object.__delattr__(layer, name) if value is None else object.__setattr__(layer, name, value)


def _forward(student: nn.Layer, batch: list[paddle.Tensor]) -> paddle.Tensor:
    outputs = student(batch[0], data=batch[1:], request=TRAIN)["head_out"]
    return outputs["ctc"].mean() + outputs["gtc"].mean()


def _step(student: nn.Layer, batch: list[paddle.Tensor], optimizer: Any) -> Step:
    def step() -> None:
        _forward(student, batch).backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def _gradients(student: nn.Layer, batch: list[paddle.Tensor]) -> list[paddle.Tensor]:
    """Return outputs and gradients with the same random numbers and running statistics."""
    state = {name: value.clone() for name, value in student.state_dict().items()}
    paddle.seed(1)
    outputs = student(batch[0], data=batch[1:], request=TRAIN)["head_out"]
    (outputs["ctc"].square().mean() + outputs["gtc"].square().mean()).backward()
    found = [outputs["ctc"].detach(), outputs["gtc"].detach()]
    found += [each.grad.clone() for each in student.parameters() if each.grad is not None]
    student.clear_gradients()
    student.set_state_dict(state)
    return found


def _difference(ones: list[paddle.Tensor], others: list[paddle.Tensor]) -> float:
    """Return the largest difference, as a share of the largest value of its tensor or of 1 % of all gradients."""
    floor = 0.01 * max(float(each.abs().max()) for each in others[2:])
    shares = [
        float((one - other).abs().max()) / max(float(other.abs().max()), floor)
        for one, other in zip(ones, others, strict=True)
    ]
    return float(np.max(shares))  # NaN stays NaN


def _profile(step: Step) -> dict[str, float]:
    """Return milliseconds of one step by kind of operator."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.json"
        profiler = paddle.profiler.Profiler(
            targets=[paddle.profiler.ProfilerTarget.CPU],
            on_trace_ready=lambda each: each.export(str(file), "json"),
        )
        with profiler:
            step()
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    spent = dict.fromkeys(_KINDS, 0.0)
    for event in events:
        name = str(event.get("name", ""))
        if re.match(r"\w+ dygraph|Global_\w+Node", name) and "dur" in event:
            kind = next(kind for kind, pattern in _KINDS.items() if re.search(pattern, name))
            spent[kind] += event["dur"] / 1000.0
    return spent
