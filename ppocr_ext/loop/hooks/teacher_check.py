"""Frozen teachers: check that they do not change, and say how many batches a teacher cache has answered for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ppocr_ext.checkpoint.weights import state_digest
from ppocr_ext.errors import ModelError
from ppocr_ext.loop.events import Hook, Outcome, Position
from ppocr_ext.messages import LOG
from ppocr_ext.run.run import Run
from ppocr_ext.teacher_cache.lookup import CachedTeacher


class TeacherCheck(Hook):
    """Compare the state of each frozen sub-model with its state at the start.

    Raises (from ``on_epoch_end``):
        ModelError: a frozen sub-model has changed.
    """

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}

    def on_start(self, run: Run, position: Position) -> None:
        # not those that `run` has: mixed precision may have cast the weights since
        self.digests = {name: state_digest(run.sub_model(name)) for name in sorted(run.frozen)}
        self._run = run

    def on_epoch_end(self, position: Position) -> None:
        self._check()

    def on_end(self, outcome: Outcome) -> None:
        if outcome.status != "failed" and self.digests:
            self._check()
            LOG.info("frozen and unchanged: %s", ", ".join(self.digests))

    def _check(self) -> None:
        for name, before in self.digests.items():
            if state_digest(self._run.sub_model(name)) != before:
                raise ModelError(
                    f"{name} is frozen (freeze_params: true), but its state has changed during training. Something "
                    f"outside of ppocr_ext writes to it: look at plugins and hooks that touch the model.",
                    code="frozen_changed",
                )


class CacheUse(Hook):
    """Count the batches of ``cache``: ``teacher_cached`` of a step is 1 or 0, and the log has the sums at the end."""

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
            "teacher cache: %d of %d batches were answered by the live teacher (%d samples were not in the cache)",
            cache.live_batches, cache.batches, cache.lacking,
        )  # fmt: skip
