"""Say when a run trains nothing: its weights stay where they are, or the optimizer steps once an epoch."""

from __future__ import annotations

import math

import numpy as np

from ppocr_ext.loop.events import Hook, Position, StepDone
from ppocr_ext.messages import LOG
from ppocr_ext.run.run import Run

STEPS = 20  # of the optimizer, in which the change is measured
# Of the size of the weights. Decay rounds them by a third of it; Adam at a rate of 1e-6 changes 40 times as much.
LIMIT = 3e-7
_COMPARED = 1024  # numbers of each tensor, so that the copy has few megabytes


class WeightChange(Hook):
    """Warn once if the first steps after warm-up hardly change the trained weights (rank 0).

    The first of these steps is the first one whose rate is not above all before. A resumed run is not checked, since it
    may be in the low rates of its end.
    """

    def on_start(self, run: Run, position: Position) -> None:
        self._run = run
        self._trained = [each for each in run.network.parameters() if not each.stop_gradient]
        self._before: np.ndarray | None = None
        self._highest = 0.0
        self._steps = STEPS if position.global_step else 0
        if (accumulate := run.config.settings.accumulate) > position.steps_per_epoch:
            LOG.warning(
                "Global.accumulate: the optimizer steps once an epoch (found %d for %d batches). Fix: a lower number.",
                accumulate,
                position.steps_per_epoch,
            )

    def on_step(self, step: StepDone) -> None:
        norm = step.values.get("grad_norm", math.inf)  # infinite if mixed precision skips the step
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
        """Return numbers of each trained tensor, of its master weight if it has one: float64 [tensors, numbers]."""
        masters = getattr(self._run.optimizer, "_master_weights", None) or {}
        firsts = [masters.get(each.name, each).flatten()[:_COMPARED] for each in self._trained]
        return np.array([np.resize(each.astype("float32").numpy(), _COMPARED) for each in firsts], float)

    def _check(self, change: float, norm: float) -> None:
        """Warn if the weights hardly change, or if so much is clipped that only decay changes them."""
        options = self._run.config.at("Optimizer")
        causes = {
            "lr": self._highest < 1e-8,
            "lr_mult": max(each.optimize_attr["learning_rate"] for each in self._trained) * self._highest
            < 1e-8,
            **{
                key: 0 < float(options.get(key) or 0) < 1e-6 * norm
                for key in ("clip_norm", "clip_norm_global")
            },
            "epsilon": float(options.get("epsilon") or 0) > 1,
        }
        cause = next((f"Optimizer.{key}" for key, is_cause in causes.items() if is_cause), "")
        if change < LIMIT or "clip" in cause:
            LOG.warning(
                "The run learns little or nothing: %d steps changed the weights by %.1g of their size (rate %.1g, "
                "gradient %.1g). Fix: correct %s.",
                STEPS,
                change,
                self._highest,
                norm,
                cause or "a key of Optimizer, or Global.freeze",
            )


def relative_change(before: np.ndarray, after: np.ndarray) -> float:
    """Return how much [tensors, numbers] changed, relative to their size.

    What only scales a tensor does not count: weight decay does so without any gradient.
    """
    squares = np.square(before).sum(axis=1, keepdims=True) + 1e-30  # a bias may be 0
    change = after - before * ((before * after).sum(axis=1, keepdims=True) / squares)
    return float(np.linalg.norm(change) / np.sqrt(squares.sum()))
