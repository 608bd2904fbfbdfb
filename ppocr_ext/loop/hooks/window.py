"""Means of the losses over a window of steps, without a device sync at every step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ppocr_ext.loop.events import StepDone
from ppocr_ext.report.run_folder import short_loss_name


@dataclass(frozen=True)
class WindowMeans:
    """Means of a window of steps.

    Attributes:
        losses: mean of each loss part, ``loss`` included.
        lr: learning rate of the last step.
        images_per_second: images trained on by wall-clock time, without evaluations.
    """

    losses: dict[str, float]
    lr: float
    images_per_second: float


class Window:
    """Collect steps until :meth:`close` returns their means."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._steps = 0
        self._images = 0
        self._lr = 0.0
        self._began = self._last_step = time.perf_counter()
        self._paused = 0.0

    @property
    def steps(self) -> int:
        """Steps collected so far."""
        return self._steps

    def add(self, step: StepDone) -> None:
        """Collect one step; the losses stay on the device."""
        for name, value in step.losses.items():
            value = value.detach() if hasattr(value, "detach") else value
            self._sums[name] = value if name not in self._sums else self._sums[name] + value
        self._steps += 1
        self._images += step.images
        self._lr = step.lr
        self._last_step = time.perf_counter()

    def leave_out_pause(self) -> None:
        """Exclude the time since the last step (an evaluation) from the speed."""
        self._paused += time.perf_counter() - self._last_step
        self._last_step = time.perf_counter()

    def close(self) -> WindowMeans:
        """Return the means of the window, and begin a new one."""
        elapsed = max(time.perf_counter() - self._began - self._paused, 1e-9)
        steps = max(self._steps, 1)
        means = WindowMeans(
            losses={name: _number(total) / steps for name, total in self._sums.items()},
            lr=self._lr,
            images_per_second=self._images / elapsed,
        )
        self.__init__()  # type: ignore[misc]
        return means


def _number(value: Any) -> float:
    return float(value.mean()) if hasattr(value, "mean") else float(value)


def format_losses(losses: Mapping[str, float]) -> str:
    """Return a text such as ``loss 1.23 (ctc 0.90, nrtr 0.33)``."""
    parts = [f"{short_loss_name(n)} {v:.3g}" for n, v in losses.items() if n != "loss"]
    total = f"loss {losses.get('loss', float('nan')):.4g}"
    return f"{total} ({', '.join(parts)})" if len(parts) > 1 else total
