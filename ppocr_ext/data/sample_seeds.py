"""Give each sample random numbers of its own, so that a resumed run augments as an unbroken one.

PaddleOCR's transforms draw from the two generators of the process, ``random`` and ``numpy.random``. What they draw
would depend on all samples before, on the number of workers, and on who else draws while Paddle loads in a thread.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppocr_ext.messages import LOG

SCHEME = 1  # of the seeds; a checkpoint stores it

# The generators belong to the process, so their lock does too. A thread may load a sample while another one forks
# worker processes: these must get neither a lock that nobody releases nor the generators of that sample.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class SeededIndex(NamedTuple):
    """An index as a batch sampler gives it, and what the random numbers of its sample come from.

    Attributes:
        index: of a dataset; of a multi-scale one (width, height, number, ratio).
        seed: (seed of the run, epoch, rank, position in the epoch's samples of this process); with views
            (``data/sample_views.py``) of another length.
    """

    index: Any
    seed: tuple[int, ...]


class SeededBatches:
    """The batches of one epoch, without those that a run has done before it resumed.

    Args:
        batches: of the whole epoch, each a list of indices.
        seed: (seed of the run, epoch, rank); or a function that returns the whole seed of an index.
        skip: batches to leave out.
    """

    def __init__(
        self,
        batches: Sequence[Sequence[Any]],
        seed: tuple[int, int, int] | Callable[[Any], tuple[int, ...]],
        skip: int = 0,
    ) -> None:
        self._batches, self._seed, self._skip = batches, seed, skip

    def __len__(self) -> int:
        return max(0, len(self._batches) - self._skip)

    def __iter__(self) -> Iterator[list[SeededIndex]]:
        position = sum(map(len, self._batches[: self._skip]))
        for batch in islice(self._batches, self._skip, None):
            yield [
                SeededIndex(index, self._seed(index) if callable(self._seed) else (*self._seed, number))
                for number, index in enumerate(batch, start=position)
            ]
            position += len(batch)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Inside, no other thread that uses this function draws; at the end both generators are as they were."""
    with _LOCK:
        before = random.getstate(), np.random.get_state(legacy=False)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


@contextmanager
def generators_seeded(*seed: int) -> Iterator[None]:
    """Seed both generators from all numbers of ``seed``; otherwise as :func:`generators_kept`."""
    digest = hashlib.blake2b("/".join(map(str, seed)).encode(), digest_size=32).digest()
    with generators_kept():
        # a half each: from the same seed both would give the same numbers
        random.seed(int.from_bytes(digest[:16], "big"))
        np.random.seed(np.frombuffer(digest[16:], "<u4"))
        yield


def warn_of_other_seeds(scheme: int | None, prefix: Path) -> None:
    """Warn if the run of a checkpoint, which stores ``scheme``, gave its samples other random numbers."""
    if scheme != SCHEME:
        LOG.warning(
            "%s was written by PaddleOCR: from here on, samples are augmented with other random "
            "numbers than that run would have drawn.",
            prefix,
        )
