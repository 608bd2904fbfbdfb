"""The evaluations of a run: which is the best and which the last, and those that the host's loop does not make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle.distributed as dist

from ppocr_ext.check.wiring import TAUGHT
from ppocr_ext.checkpoint.checkpoints import Position
from ppocr_ext.checkpoint.contents import EVALUATED
from ppocr_ext.config.global_keys import global_value
from ppocr_ext.loop.events import EvalDone, Hook
from ppocr_ext.run.run import Run


class Evaluations:
    """Know the best and the last evaluation of a run, and which are due before its first step and after its last one.

    Args:
        run: a training run.
        hooks: of the run; they are told of each evaluation.

    Attributes:
        best: the metrics of the best one, and its ``best_epoch``: 0 for the weights that the run started from.
        last: the metrics of the last one, and its ``step``. Resumed from a checkpoint that does not have it, the step
            alone, of that checkpoint.
        indicator: name of the metric that decides which is the best.
        due_at_start: this process is to evaluate the weights that the run starts from.
    """

    def __init__(self, run: Run, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks
        self.best: dict[str, float] = dict(run.best)
        self.last: dict[str, float] = dict(run.hook_states.get(EVALUATED, {"step": run.start.global_step}))
        self.indicator = run.metric.main_indicator
        self._evaluates = dist.get_rank() == 0 and run.eval_loader is not None and len(run.eval_loader) > 0
        asked = run.starts_from_weights and bool(global_value(run.config, "eval_at_start"))
        self.due_at_start = asked and self._evaluates

    def done(self, metrics: Mapping[str, float], position: Position) -> bool:
        """Tell the hooks of an evaluation, and return True if it is the best, by the rule of the host."""
        numbers = {name: float(value) for name, value in metrics.items()}
        step = position.global_step
        self.last = {**{name: value for name, value in numbers.items() if name != "fps"}, "step": step}
        is_best = numbers[self.indicator] >= float(self.best.get(self.indicator, 0.0))
        if is_best:
            self.best = {**numbers, "best_epoch": position.completed().epoch or min(step, 1)}
        values = dict(metrics)
        for hook in self._hooks:
            values |= hook.measure_eval()
        result = EvalDone(position, values, is_best, dict(self.best), is_start=step == 0)
        for hook in self._hooks:
            hook.on_eval(result)
        for hook in self._hooks:
            hook.on_eval_end()
        return is_best

    def state(self) -> Mapping[str, Any]:
        """Return the last evaluation for the training state, as hooks return theirs; empty before the first."""
        return {EVALUATED: self.last} if self.indicator in self.last else {}

    def due_at_end(self, position: Position) -> bool:
        """Return True if this process is to evaluate at the end of an epoch: of the last one, if the host has not."""
        is_last = position.completed().epoch >= position.epochs
        return is_last and self._evaluates and self.last["step"] != position.global_step


def evaluate_now(run: Run, model: Any, loader: Any, metric: Any) -> Mapping[str, float]:
    """Evaluate as the host's loop does between two steps, and return the values of the metric.

    Args:
        run: a training run.
        model: as the host sees it; it is in train mode afterwards.
        loader: as the host sees it.
        metric: as the host sees it.
    """
    config, amp = run.config, run.amp
    models = config.at("Architecture.Models", default=None)
    networks = models.values() if models else [config.at("Architecture")]
    return run.host.evaluate(
        model,
        loader,
        run.decoder,
        metric,
        config.at("Architecture.model_type", default=None),
        extra_input=any(network.get("algorithm") in TAUGHT for network in networks),
        scaler=amp.scaler,
        amp_level=amp.level,
        amp_custom_black_list=amp.black_list,
        amp_custom_white_list=amp.white_list,
        amp_dtype=amp.dtype,
    )
