"""Lists that are mixed into the batches of Train: how many samples each batch has of them, and which ones."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from ppocr_ext.config import Config
from ppocr_ext.data.mixing import MixedBatches, MixedList, MixedSamples, mixed_lists

OWN = [7, 7, 7, 4]  # samples of Train.dataset in each batch of an epoch
ENDS = [25, 30, 130]  # 25 samples of Train.dataset, 5 of the first list, 100 of the second one


def lists(*ratios):
    return [MixedList(f"Train.mix.{number}", Fraction(ratio), True) for number, ratio in enumerate(ratios)]


def batches(epoch, rank, processes, mixed):
    own = [[0] * size for size in OWN]
    return list(MixedBatches(own, mixed, ENDS, (epoch - 1) * sum(OWN), 7, rank, processes))


def counts(batch):
    """How many samples of a batch belong to each list."""
    return [sum(begin <= place < end for place in batch) for begin, end in zip(ENDS, ENDS[1:], strict=False)]


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("ratios", [("3/7", "1/7"), ("0.3", "1.7"), ("1", "0.001")])
def test_every_process_and_all_together_take_what_is_due(processes, ratios):
    mixed = lists(*ratios)
    taken = np.zeros((processes, 2), int)
    read = 0
    for epoch in range(1, 9):
        of_processes = [batches(epoch, rank, processes, mixed) for rank in range(processes)]
        for number, own in enumerate(OWN):
            read += own
            for rank in range(processes):
                found = counts(of_processes[rank][number])
                assert len(of_processes[rank][number]) == own + sum(found)
                for each, count in zip(mixed, found, strict=True):
                    assert count in (math.floor(each.ratio * own), math.ceil(each.ratio * own))
                taken[rank] += found
            due = [each.ratio * read for each in mixed]
            for number_of_list in range(2):
                of_list = taken[:, number_of_list]
                assert all(abs(int(count) - due[number_of_list]) < 1 for count in of_list)
                assert abs(int(of_list.sum()) - processes * due[number_of_list]) < 1


def test_a_list_is_read_whole_before_a_sample_comes_again():
    mixed = lists("1", "1")
    seen = [place for epoch in (1, 2, 3, 4) for batch in batches(epoch, 0, 1, mixed) for place in batch]
    shared = [
        place
        for epoch in (1, 2)
        for rank in (0, 1)
        for each in batches(epoch, rank, 2, mixed)
        for place in each
    ]
    assert sorted(place for place in shared if place >= 30) == list(range(30, 130))
    first = [place for place in seen if 25 <= place < 30]
    assert all(sorted(first[at : at + 5]) == [25, 26, 27, 28, 29] for at in range(0, 100, 5))
    assert first[:5] != first[5:10]
    second = Counter(place for place in seen if place >= 30)
    assert len(second) == 100 and set(second.values()) == {1}


def test_samples_get_the_size_of_their_batch():
    for ratio, width in ((None, 192), (5.2, 240)):
        own = [[(192, 48, place, ratio) for place in range(4)]]
        (batch,) = MixedBatches(own, lists("1"), [25, 30], 0, 7, 0, 1)
        assert batch[:4] == own[0]
        assert all((each[0], each[1], each[3]) == (width, 48, None) for each in batch[4:])


class Drawn(list):
    """Draws other samples in each epoch."""

    def set_epoch(self, epoch):
        self[:] = [f"{epoch}"] * len(self)


def test_a_list_that_is_drawn_draws_anew_in_each_epoch():
    samples = MixedSamples([["own"], Drawn(["0"] * 2)], lists("1"))
    samples.set_epoch(3)
    assert [samples[place] for place in range(3)] == ["own", "3", "3"]


def test_lists_without_labels_stand_behind_those_with_labels():
    config = Config(
        {
            "Train": {
                "mix": [{"share": 0.2, "labelled": False}, {"share": 0.3}, {"share": 0.1, "labelled": False}]
            }
        }
    )
    found = mixed_lists(config)
    assert [each.section for each in found] == ["Train.mix.1", "Train.mix.0", "Train.mix.2"]
    assert [each.ratio for each in found] == [Fraction(3, 4), Fraction(1, 2), Fraction(1, 4)]
    samples = MixedSamples([[["a"]] * 2, [["b"]] * 3, [["c"]], [["d"]]], found)
    assert [(image, int(flag)) for image, flag in (samples[place] for place in range(7))] == [
        *[("a", 1)] * 2,
        *[("b", 1)] * 3,
        ("c", 0),
        ("d", 0),
    ]
    assert len(samples) == 2
