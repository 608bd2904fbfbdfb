"""Check the weights of a run. Those of frozen teachers must not change, and those of trained networks must.

The last hook counts the batches that a teacher cache has answered.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ppocr_ext.checkpoint.weights import full_precision
from ppocr_ext.errors import ModelError
from ppocr_ext.loop.events import Hook, Outcome, StepDone
from ppocr_ext.messages import LOG
from ppocr_ext.modeling.digests import state_digest
from ppocr_ext.run.freezing import frozen_models
from ppocr_ext.run.run import Run, Training
from ppocr_ext.teacher_cache.lookup import CachedTeacher


class TeacherCheck(Hook):
    """Compare each frozen sub-model with its state at the start, after each epoch and at the end.

    Raises (from ``on_epoch_end`` and ``on_end``):
        ModelError: a frozen sub-model has changed.
    """

    def on_start(self, run: Run, training: Training) -> None:
        # Not `training.frozen_digests`, since mixed precision may have cast the weights after they were taken.
        self._frozen = {name: getattr(run.network, name) for name in sorted(frozen_models(run.network))}
        self.digests = {name: state_digest(model) for name, model in self._frozen.items()}

    def on_epoch_end(self) -> None:
        self._check()

    def on_end(self, outcome: Outcome) -> None:
        if outcome.status != "failed" and self.digests:
            self._check()
            LOG.info("frozen and unchanged: %s", ", ".join(self.digests))

    def _check(self) -> None:
        for name, model in self._frozen.items():
            if state_digest(model) != self.digests[name]:
                raise ModelError(
                    f"{name} is frozen (freeze_params: true), but its state has changed during training. Fix: look for "
                    f"plugins and hooks that change the model.",
                    code="frozen_changed",
                )


class CacheUse(Hook):
    """Count the batches that ``cache`` answers, as 1 or 0 for a step (``teacher_cached``), and as a sum at the end."""

    def __init__(self, cache: CachedTeacher) -> None:
        self._cache = cache

    def measure_outputs(
        self, predictions: Any, batch: Sequence[Any], losses: Mapping[str, Any]
    ) -> Mapping[str, float]:
        return {"teacher_cached": float(not self._cache.is_live)}

    def on_end(self, outcome: Outcome) -> None:
        cache = self._cache
        LOG.log(
            logging.WARNING if cache.live_batches else logging.INFO,
            "%s",
            f"teacher cache: {cache.live_batches} of {cache.batches} batches were answered by the live teacher "
            f"({cache.lacking} samples were not in the cache)",
        )


STEPS = 20  # steps of the optimizer over which the change is measured
# Smallest relative change. Rounding by weight decay gives a third of it, Adam at a rate of 1e-6 gives 40 times.
LIMIT = 3e-7
_COMPARED = 1024  # numbers of each tensor, so the copy has only a few megabytes


class WeightChange(Hook):
    """Warn if the first steps after warm-up hardly change the trained weights (a hook of process 0).

    Warm-up ends at the first step whose rate is not the highest so far. A resumed run is not checked, since its rates
    may be low.
    """

    def on_start(self, run: Run, training: Training) -> None:
        self._options = run.context.config.at("Optimizer")
        self._optimizer = training.optimizer
        self._trained = [each for each in run.network.parameters() if not each.stop_gradient]
        self._before: np.ndarray | None = None
        self._highest = 0.0
        start = training.start
        self._steps = STEPS if start.global_step else 0
        if (accumulate := run.context.config.settings.accumulate) > start.steps_per_epoch:
            LOG.warning(
                "%s",
                f"Global.accumulate: the optimizer steps once an epoch (found {accumulate} for {start.steps_per_epoch} "
                f"batches). Fix: a lower number.",
            )

    def on_step(self, step: StepDone) -> None:
        norm = step.values.get("grad_norm", math.inf)  # mixed precision skips a step whose norm is infinite
        if self._steps == STEPS or not step.applied or not math.isfinite(norm):
            return
        if step.lr > self._highest:
            self._highest = step.lr
            self._before = None
            self._steps = 0
        elif self._before is None:
            self._before = self._weights()
        else:
            self._steps += 1
            if self._steps == STEPS:
                self._check(relative_change(self._before, self._weights()), norm)

    def _weights(self) -> np.ndarray:
        """Return numbers of each trained tensor (or its master weight): float64 [tensors, numbers]."""
        exact = full_precision({each.name: each for each in self._trained}, self._optimizer).values()
        return np.array([np.resize(each.flatten()[:_COMPARED].numpy(), _COMPARED) for each in exact], float)

    def _check(self, change: float, norm: float) -> None:
        """Warn if the weights hardly change, or if clipping leaves so little that only decay changes them."""
        causes = {
            "lr": self._highest < 1e-8,
            "lr_mult": max(each.optimize_attr["learning_rate"] for each in self._trained) * self._highest
            < 1e-8,
            **{
                key: 0 < float(self._options.get(key) or 0) < 1e-6 * norm
                for key in ("clip_norm", "clip_norm_global")
            },
            "epsilon": float(self._options.get("epsilon") or 0) > 1,
        }
        cause = next((f"Optimizer.{key}" for key, is_cause in causes.items() if is_cause), "")
        if change < LIMIT or "clip" in cause:
            LOG.warning(
                "%s",
                f"The run learns little or nothing: {STEPS} steps changed the weights by {change:.1g} of their size "
                f"(rate {self._highest:.1g}, gradient {norm:.1g}). Fix: correct "
                f"{cause or 'a key of Optimizer, or Global.freeze'}.",
            )


def relative_change(before: np.ndarray, after: np.ndarray) -> float:
    """Return the change of [tensors, numbers] relative to their size.

    Scaling of a whole tensor does not count, since weight decay does it without a gradient.
    """
    squares = np.square(before).sum(axis=1, keepdims=True) + 1e-30  # a bias may be 0
    change = after - before * ((before * after).sum(axis=1, keepdims=True) / squares)
    return float(np.linalg.norm(change) / np.sqrt(squares.sum()))
