"""Average the weights over the steps of a run, and evaluate the average: ``Global.ema``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import paddle
from paddle import nn

from ppocr_ext.checkpoint.contents import EMA, average_in
from ppocr_ext.checkpoint.weights import STATISTICS, put_back
from ppocr_ext.loop.events import Hook, StepDone
from ppocr_ext.messages import LOG
from ppocr_ext.run.freezing import frozen_models
from ppocr_ext.run.recogniser import BEST
from ppocr_ext.run.run import Run, Training


def averaged_tensors(network: nn.Layer) -> dict[str, Any]:
    """Return the averaged tensors by name in ``state_dict``: trained parameters and BatchNorm's statistics."""
    frozen = frozen_models(network)
    return {
        name: tensor
        for name, tensor in network.state_dict().items()
        if tensor.is_floating_point()
        and name.partition(".")[0] not in frozen
        and (name.endswith(STATISTICS) or not tensor.stop_gradient)
    }


class Ema(Hook):
    """Keep an exponential moving average of the weights in float32, and evaluate with it (a hook of process 0).

    After each step that changed the weights: ``average += (1 - d) * (weights - average)`` with
    ``d = min(decay, (1 + n) / (10 + n))``, where ``n`` is the number of averaged steps. So the average soon forgets the
    first steps (as in TensorFlow's ``ExponentialMovingAverage`` with ``num_updates``). The trained weights are bit for
    bit those of a run without an average.

    Args:
        decay: the share d of the average that stays at each step, from 0 to 1.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay

    @paddle.no_grad()
    def on_start(self, run: Run, training: Training) -> None:
        self._tensors = averaged_tensors(run.network)
        self._current = partial(training.full_precision, self._tensors)
        # The trained weights, while the averages stand in their place in an evaluation.
        self._raw: dict[str, Any] | None = None
        if training.start.global_step and EMA not in training.hook_states:
            LOG.info("Global.ema: the checkpoint has no average; it begins with the weights of this step")
        self._updates = int(training.hook_states.get(EMA, {}).get("updates", 0))
        before = average_in(training.hook_states)
        self._average = {
            name: paddle.to_tensor(before[name]) if name in before else tensor.clone()
            for name, tensor in self._current().items()
        }

    def state(self) -> Mapping[str, Any]:
        average = {name: tensor.numpy() for name, tensor in self._average.items()}
        return {"updates": self._updates, "average": average}

    def saved_weights(self, name: str) -> Mapping[str, Any]:
        return self._average if name == BEST else {}

    @paddle.no_grad()
    def on_step(self, step: StepDone) -> None:
        # Mixed precision skips a step whose norm is infinite.
        if not (step.applied and step.is_whole and math.isfinite(step.values.get("grad_norm", 0.0))):
            return
        count = self._updates
        weight = paddle.full([], 1.0 - min(self._decay, (1 + count) / (10 + count)))
        for name, tensor in self._current().items():
            # One by one, since Paddle's operators on lists of tensors would change the weights too.
            self._average[name].lerp_(tensor, weight)
        self._updates += 1

    @paddle.no_grad()
    def on_eval_start(self) -> None:
        self._raw = {name: tensor.clone() for name, tensor in self._current().items()}
        self._put(self._average)

    def on_eval_end(self) -> None:
        if self._raw is not None:
            self._put(self._raw)
            self._raw = None

    def _put(self, values: Mapping[str, Any]) -> None:
        """Put weights into the network, and into the master weights, which are what another hook would read."""
        for tensors in (self._current(), self._tensors):
            put_back(values, tensors)
