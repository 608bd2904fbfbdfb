"""Finish a run that no longer improves: ``Global.early_stop``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ppocr_ext.checkpoint.contents import is_start
from ppocr_ext.errors import ConfigError
from ppocr_ext.loop.events import EvalDone, Hook
from ppocr_ext.run.general import is_left_to_choose
from ppocr_ext.run.run import Run, Training


class EarlyStop(Hook):
    """Stop after ``patience`` evaluations in a row without a better main indicator (a hook of process 0).

    All processes stop at the same step, and the run counts as finished. Checkpoints store the count for a resumed run.

    Args:
        patience: number of evaluations.
        min_delta: an evaluation is better if it exceeds the best by more than this; None for 0.
    """

    def __init__(self, patience: int, min_delta: float | None = None) -> None:
        self._patience = patience
        self._min_delta = min_delta or 0.0

    def on_start(self, run: Run, training: Training) -> None:
        """Continue the count of the checkpoint.

        Raises:
            ConfigError: the run has been stopped there, and would be stopped again.
        """
        self._indicator = run.metric.main_indicator
        state = training.hook_states.get(type(self).__name__, {})
        best = {} if is_start(training.best) else training.best
        self._best = float(state.get("best", best.get(self._indicator, -math.inf)))
        self._without = int(state.get("without", 0))
        if self._without < self._patience:
            return
        if (checkpoint := run.context.checkpoint) is None or not is_left_to_choose(checkpoint):
            raise ConfigError(
                f"Global.checkpoints: this run finished early, after step {training.start.global_step}: "
                f"{self._reason()}. Fix: increase Global.early_stop.patience, or remove early_stop, to continue.",
                code="nothing_left",
            )
        self.loop.request_stop(self._reason(), status="finished")

    def state(self) -> Mapping[str, Any]:
        return {} if math.isinf(self._best) else {"best": self._best, "without": self._without}

    def on_eval(self, result: EvalDone) -> None:
        if result.is_start:
            return
        value = float(result.metrics[self._indicator])
        if value > self._best + self._min_delta:
            self._best = value
            self._without = 0
            return
        self._without += 1
        if self._without >= self._patience:
            self.loop.request_stop(self._reason(), status="finished")

    def _reason(self) -> str:
        than = f"{self._best:.4f}" + (f" by more than {self._min_delta:g}" if self._min_delta else "")
        return f"early stop: {self._indicator} has not exceeded {than} in {self._without} evaluations"
