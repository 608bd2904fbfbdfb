"""Say how many batches a teacher cache has answered for, and how many the live teacher."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ppocr_ext.loop.events import Hook, Outcome
from ppocr_ext.messages import LOG
from ppocr_ext.teacher_cache.lookup import CachedTeacher


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
