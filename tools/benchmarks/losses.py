"""What each loss of a distillation costs, forward and backward, on drawn logits; PaddleOCR's in turns with ours."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paddle

from benchmarks.peer import imported
from benchmarks.sizes import SIZES
from benchmarks.step import PEER, WARM_UP, setting
from benchmarks.table import Spread, megabytes, processor, report, threads, verdict
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import TRAIN, build_model
from ppocr_ext.run.device import tune_cpu

OURS, ALL = "ppocr_ext", "all of them"
TOLERANCE = 1e-4
_HEADS = ("ctc", "gtc")


@dataclass
class LossCosts:
    """Seconds, memory and values of losses.

    Attributes:
        setting: in words.
        seconds: forward and backward in each round, by loss and by whose it is.
        values: of the losses, likewise.
        peaks: memory besides the logits, in bytes, likewise.
    """

    setting: str
    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    peaks: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """True if the values of all are equal."""
        return all(
            math.isclose(value, by_whom[OURS], rel_tol=TOLERANCE)
            for by_whom in self.values.values()
            for value in by_whom.values()
        )

    def to_markdown(self) -> str:
        """A row for each loss; the peer's columns only if it was measured."""
        rows = []
        for name, by_whom in self.seconds.items():
            best = [f"{1000 * min(times):.1f}" for times in by_whom.values()]
            ratios = [f"{Spread.of_ratios(times, by_whom[OURS])}" for times in list(by_whom.values())[1:]]
            rows.append([name, *best, *ratios, *map(megabytes, self.peaks[name].values())])
        whose = list(next(iter(self.seconds.values())))
        head = ["loss", *(f"{name}, ms (best)" for name in whose)]
        head += [f"{name}'s in ours (of rounds)" for name in whose[1:]]
        head += [f"{name}, peak memory in MB" for name in whose]
        return report(self.setting, (head, rows), f"Values {verdict(self.agrees)} (limit {TOLERANCE:.0e})")


def measure_losses(size: str, batch: int = 16, rounds: int = 10, peer: str | None = None) -> LossCosts:
    """Measure forward and backward pass of each loss of svtrv2/distill.yml, and of all together.

    Args:
        size: ``"tiny"`` (the quickstart's classes) or ``"full"`` (6,625).
        batch: lines.
        rounds: measured ones, after two to warm up; all are taken in turns.
        peer: folder of a PaddleOCR checkout, whose losses are measured too.
    """
    if paddle.get_device() == "cpu":
        tune_cpu()
    config, given, described = setting(size, batch, SIZES[size][1])
    student = build_model(config.at("Architecture").thaw()).Student
    with paddle.no_grad():
        outputs = student(given[0], data=given[1:], request=TRAIN)["head_out"]
    shapes = {head: list(outputs[head].shape) for head in _HEADS}
    section = config.at("Loss").thaw()
    builders = {OURS: build_loss}
    if peer is not None:
        builders[PEER] = imported(Path(peer), "losses")[0].build_loss
    parts = {next(iter(each)): [each] for each in section["loss_config_list"]}
    parts[ALL] = section["loss_config_list"]
    losses = {
        name: {whose: build({**section, "loss_config_list": listed}) for whose, build in builders.items()}
        for name, listed in parts.items()
    }
    paddle.seed(0)
    logits = {
        model: {"head_out": {head: paddle.randn(shape) for head, shape in shapes.items()}}
        for model in ("Student", "Teacher")
    }
    costs = LossCosts(
        f"{described}, logits {' and '.join(map(str, shapes.values()))}, {threads()}, Paddle {paddle.__version__} on "
        f"{paddle.get_device()}, {processor()}, {rounds} rounds"
    )
    for turn in range(rounds + WARM_UP):
        for name, by_whom in losses.items():
            for whose, loss in by_whom.items():
                seconds, value, peak = _pass(loss, logits, given)
                costs.values.setdefault(name, {})[whose] = value
                costs.peaks.setdefault(name, {})[whose] = peak
                if turn >= WARM_UP:
                    costs.seconds.setdefault(name, {}).setdefault(whose, []).append(seconds)
    return costs


def _pass(loss: Any, logits: Mapping[str, Any], batch: list[paddle.Tensor]) -> tuple[float, float, int]:
    """Return the seconds of both passes, the value, and the bytes that Paddle had taken at most besides the logits.

    Losses get copies of the logits, since PaddleOCR's change them.
    """
    copies: dict[str, Any] = {}
    for model, outputs in logits.items():
        leaves = {head: each.detach().clone() for head, each in outputs["head_out"].items()}
        for leaf in leaves.values():
            leaf.stop_gradient = model != "Student"
        # a leaf may not be changed in place
        copies[model] = {"head_out": {head: leaf.clone() for head, leaf in leaves.items()}}
    before = _allocated()
    began = time.perf_counter()
    total = loss(copies, batch)["loss"]
    total.backward()
    if paddle.get_device() != "cpu":
        paddle.device.synchronize()
    return time.perf_counter() - began, float(total), _allocated(most=True) - before


def _allocated(most: bool = False) -> int:
    """Return the bytes that Paddle has given to tensors, or ``most`` since the last call; forget the most."""
    if paddle.get_device() != "cpu":
        memory = paddle.device.cuda
        found = memory.max_memory_allocated() if most else memory.memory_allocated()
        memory.reset_max_memory_allocated()
        return int(found)
    core, kind = paddle.base.core, ("Allocated", 0)
    found = (core.host_memory_stat_peak_value if most else core.host_memory_stat_current_value)(*kind)
    core.host_memory_stat_reset_peak_value(*kind)
    return int(found)
