"""Give each sample random numbers of its own, so that a resumed run augments as an unbroken one.

PaddleOCR's transforms draw from the two generators of the process, ``random`` and ``numpy.random``. What they draw
would depend on all samples before, on the number of workers, and on who else draws while Paddle loads in a thread.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.messages import LOG

SCHEME = 1  # of the seeds; a checkpoint stores it

# The generators belong to the process, so their lock does too. A thread may load a sample while another one forks
# worker processes: these must get neither a lock that nobody releases nor the generators of that sample.
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Inside, no other thread that uses this function draws; at the end both generators are as they were."""
    with _LOCK:
        before = generators_state()
        try:
            yield
        finally:
            set_generators(before)


@contextmanager
def generators_seeded(*seed: int) -> Iterator[None]:
    """Seed both generators from all numbers of ``seed``; otherwise as :func:`generators_kept`."""
    digest = hashlib.blake2b("/".join(map(str, seed)).encode(), digest_size=32).digest()
    with generators_kept():
        # a half each: from the same seed both would give the same numbers
        random.seed(int.from_bytes(digest[:16], "big"))
        np.random.seed(np.frombuffer(digest[16:], "<u4"))
        yield


def generators_state() -> tuple[Any, Any]:
    """Return the state of both generators."""
    return random.getstate(), np.random.get_state(legacy=False)


def set_generators(state: tuple[Any, Any]) -> None:
    """Let both generators go on from ``state``."""
    random.setstate(state[0])
    np.random.set_state(state[1])


def warn_of_other_seeds(scheme: int | None, prefix: Path) -> None:
    """Warn if the run of a checkpoint, which stores ``scheme``, gave its samples other random numbers."""
    if scheme != SCHEME:
        LOG.warning(
            "%s was written by PaddleOCR: from here on, samples are augmented with other random "
            "numbers than that run would have drawn.",
            prefix,
        )
