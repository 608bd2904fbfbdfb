"""The generators of the process: seeded for one sample, whatever other threads and processes do, and put back."""

from __future__ import annotations

import multiprocessing
import random
import threading

import numpy as np
import pytest
from waiting import HANG

from ppocr_ext.data.sample_seeds import generators_kept, generators_seeded


def draw() -> tuple[float, float]:
    return random.random(), float(np.random.random())


def drawn_from(*seed: int) -> tuple[float, float]:
    with generators_seeded(*seed):
        return draw()


def test_each_part_of_the_seed_counts_and_the_two_generators_differ() -> None:
    seeds = [(1, 1, 0, 0), (2, 1, 0, 0), (1, 2, 0, 0), (1, 1, 1, 0), (1, 1, 0, 1), (11, 0, 0)]
    values = [value for seed in seeds for value in drawn_from(*seed)]
    assert len(set(values)) == 2 * len(seeds)
    assert values == [value for seed in reversed(seeds) for value in reversed(drawn_from(*seed))][::-1]


def test_an_exception_leaves_the_generators_as_they_were() -> None:
    with generators_kept():
        random.seed(3), np.random.seed(3)
        expected = draw()
        random.seed(3), np.random.seed(3)
        with pytest.raises(ValueError, match="broken"), generators_seeded(1):
            draw()
            raise ValueError("broken")
        assert draw() == expected


def test_neither_another_thread_nor_a_fork_disturbs_a_sample() -> None:
    entered, leave, found = threading.Event(), threading.Event(), []

    def load() -> None:
        with generators_seeded(1, 2):
            found.append(random.random())
            entered.set()
            leave.wait(HANG)
            found.append(float(np.random.random()))

    thread = threading.Thread(target=load)
    thread.start()
    assert entered.wait(HANG)
    threading.Timer(0.2, leave.set).start()
    # waits for the sample: its process has neither the sample's generators nor its lock
    worker = multiprocessing.get_context("fork").Process(target=drawn_from, args=(5,))
    worker.start()
    assert len(found) == 2 and tuple(found) == drawn_from(1, 2)
    worker.join(HANG)
    thread.join(HANG)
    assert worker.exitcode == 0
