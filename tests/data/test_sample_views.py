"""A sample has the same numbers and the same size in each view, whatever else is in the data."""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections import Counter

import numpy as np
import pytest
from waiting import HANG

from ppocr_ext.data.sample_seeds import (
    BatchSize,
    ViewBatches,
    Views,
    generators_kept,
    generators_seeded,
    groups_of_scales,
)

SCALES = [(320, 32, 6), (320, 48, 4), (320, 64, 3)]


def keys(count: int) -> list[bytes]:
    return [f"image{number}.png\tlabel".encode() for number in range(count)]


def sized(
    batches: list[list[tuple[int, int, int, int | None]]], names: list[bytes]
) -> dict[bytes, tuple[int, ...]]:
    """Size and ratio of each sample; a batch holds one size."""
    found = {}
    for batch in batches:
        assert len({(width, height, ratio) for width, height, _, ratio in batch}) == 1
        found.update({names[place]: (width, height, ratio or 0) for width, height, place, ratio in batch})
    return found


def of_scales(count: int, views: int = 3, ratios: list[float] | None = None, seed: int = 5) -> ViewBatches:
    groups = groups_of_scales(SCALES, ratios, count, 320)
    return ViewBatches(Views(seed, views), groups, keys(count).__getitem__)


def test_numbers_follow_from_seed_sample_and_view():
    views = Views(1, 2)
    assert views.sample_seed(b"a", 0) == Views(1, 9).sample_seed(b"a", 0)
    others = {views.sample_seed(b"a", 0), views.sample_seed(b"b", 0), views.sample_seed(b"a", 1)}
    assert len(others | {Views(2, 2).sample_seed(b"a", 0)}) == 4
    assert [views.of_epoch(epoch) for epoch in range(1, 5)] == [1, 0, 1, 0]


def test_a_size_repeats_with_its_view_and_batches_do_not():
    batches, names = of_scales(200), keys(200)
    first, again, other = (batches.of_epoch(epoch, seed=8) for epoch in (1, 4, 2))
    assert sized(first, names) == sized(again, names) != sized(other, names)
    assert len(first) == len(other) and {*map(tuple, first)} != {*map(tuple, again)}
    for epoch in (first, other):
        assert Counter(index[2] for batch in epoch for index in batch) == Counter(range(200))
    sizes = Counter(height for _, height, _ in sized(first, names).values())
    # shares as the batch sizes 6, 4, 3
    assert sizes == {32: 92, 48: 62, 64: 46}


def test_samples_keep_their_ratio():
    ratios = [0.2, 1.4, 3.6, 4.4, 30.0] * 20
    found = sized(of_scales(100, ratios=ratios).of_view(0), keys(100))
    for name, ratio in zip(keys(100), ratios, strict=True):
        _, height, kept = found[name]
        # at least a square, at most 320 wide
        assert kept == min(max(1, round(ratio)), 320 // height)


@pytest.mark.parametrize("count", [1, 10, 11])
def test_processes_share_an_epoch(count):
    batches = ViewBatches(Views(0, 1), [([BatchSize(int, 2)], np.arange(count))], keys(count).__getitem__)
    shares = [batches.of_epoch(3, 7, rank, 4) for rank in range(4)]
    assert len({*map(len, shares)}) == 1
    assert {place for share in shares for batch in share for place in batch} == set(range(count))
    # no more than what fills the last shares up
    assert sum(map(len, shares)) - len(batches.of_epoch(3, 7)) < 4


def test_order_and_drop_last_of_a_loader():
    groups = [([BatchSize(int, 4)], np.arange(10))]
    straight = ViewBatches(Views(0, 1), groups, keys(10).__getitem__, shuffle=False, drop_last=True)
    assert straight.of_epoch(1, 1) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [len(batch) for batch in straight.of_view(0)] == [4, 4, 2]  # the cache has every sample
    mixed = ViewBatches(Views(0, 1), groups, keys(10).__getitem__)
    assert mixed.of_epoch(1, 1) != mixed.of_epoch(1, 2)
    assert mixed.of_epoch(1, 1) != mixed.of_epoch(2, 1)


# The generators of the process: seeded for one sample, whatever other threads and processes do, and put back


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
