import multiprocessing
import random

import numpy as np
import paddle
import pytest

from ppocr_ext.loop.proxies import EvalListener, LoaderProxy
from ppocr_ext.run.batch_loader import BatchLoader


class Numbers(paddle.io.Dataset):
    """Item i is (i, a random draw), so that order and randomness can both be seen."""

    def __init__(self, count=10):
        super().__init__()
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return (np.array([index, random.randrange(10**6), np.random.randint(10**6)]),)


def loader(batch_size=2, count=10, workers=0):
    dataset = Numbers(count)
    sampler = paddle.io.DistributedBatchSampler(dataset, batch_size, num_replicas=1, rank=0, shuffle=True)
    return BatchLoader(paddle.io.DataLoader(dataset, batch_sampler=sampler, num_workers=workers))


class Log(list):
    def boundary(self):
        self.append("boundary")

    def epoch(self):
        self.append("epoch")


def proxy(log, first_epoch=1, skip=0, rebuild=None, **options):
    return LoaderProxy(
        loader(**options),
        seed=7,
        first_epoch=first_epoch,
        skip=skip,
        rebuild=rebuild,
        on_boundary=log.boundary,
        on_epoch=log.epoch,
    )


def order(batches):
    return [int(i) for batch in batches for i in batch[0].numpy()[:, 0]]


def test_an_epoch_has_its_length_and_its_boundaries():
    log = Log()
    data = proxy(log)
    assert len(data) == 5
    assert sorted(order(list(data))) == list(range(10))
    assert log == ["boundary"] * 5 + ["epoch"]


def test_each_epoch_has_another_order_and_the_same_one_in_every_run():
    first, second = proxy(Log()), proxy(Log())
    epochs = [order(list(first)) for _ in range(2)]
    assert epochs == [order(list(second)) for _ in range(2)]
    assert epochs[0] != epochs[1]


class Scales(paddle.io.BatchSampler):
    """As PaddleOCR's MultiScaleSampler: shuffles its batches with a seed of its own, on the global generator."""

    def __init__(self, batches=5):
        self.batchs_in_one_epoch_id = list(range(batches))
        self.seed = None

    def __iter__(self):
        random.seed(self.seed)
        random.shuffle(self.batchs_in_one_epoch_id)
        return iter([[2 * i, 2 * i + 1] for i in self.batchs_in_one_epoch_id])

    def __len__(self):
        return len(self.batchs_in_one_epoch_id)


def test_all_processes_see_the_same_scales_and_draw_other_numbers():
    seen = []
    for rank in (0, 1):
        log = Log()
        scaled = BatchLoader(paddle.io.DataLoader(Numbers(), batch_sampler=Scales()), seed=7, rank=rank)
        data = LoaderProxy(
            scaled,
            seed=7,
            first_epoch=1,
            skip=1,
            rebuild=None,
            on_boundary=log.boundary,
            on_epoch=log.epoch,
        )
        seen.append(np.concatenate([batch[0].numpy() for batch in data]))
    first, second = seen
    assert len(first) == 8  # one batch was done before
    np.testing.assert_array_equal(first[:, 0], second[:, 0])
    assert not (first[:, 1:] == second[:, 1:]).any()


def test_a_resumed_run_sees_the_batches_it_would_have_seen():
    whole = proxy(Log())
    list(whole)
    expected = order(list(whole))
    log = Log()
    resumed = proxy(log, first_epoch=2, skip=3)
    assert len(resumed) == 5  # the schedule and the host count full epochs
    assert order(list(resumed)) == expected[6:]
    assert log == ["boundary"] * 2 + ["epoch"]
    assert len(order(list(resumed))) == 10  # and the epoch after is whole again


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_sample_draws_depends_on_its_position_alone(workers):
    def draws(data):
        return np.concatenate([b[0].numpy()[:, 1:] for b in data])

    whole = proxy(Log())
    first, second = draws(whole), draws(whole)
    resumed = draws(proxy(Log(), first_epoch=2, skip=3, workers=workers))
    np.testing.assert_array_equal(second[6:], resumed)
    assert len(np.unique(np.concatenate([first, second]))) > 35  # of 40: no two samples draw alike


def test_an_epoch_leaves_the_generators_as_they_were():
    random.seed(5), np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5), np.random.seed(5)
    list(proxy(Log()))
    assert (random.random(), np.random.random()) == expected


def test_the_host_never_rebuilds_but_we_do():
    made = []

    def rebuild(epoch):
        made.append(epoch)
        return loader()

    data = proxy(Log(), rebuild=rebuild)
    assert data.dataset.need_reset is False
    list(data), list(data), list(data)
    assert made == [2, 3]


@pytest.mark.parametrize("skip", [0, 3])
def test_an_epoch_leaves_no_worker_process_behind(skip):
    before = set(multiprocessing.active_children())
    assert len(list(proxy(Log(), skip=skip, workers=1))) == 5 - skip
    assert set(multiprocessing.active_children()) <= before


def test_a_stop_at_a_boundary_leaves_the_epoch():
    class StopHere(BaseException):  # noqa: N818
        pass

    def stop():
        raise StopHere

    log = Log()
    data = proxy(log)
    data._on_boundary = stop
    with pytest.raises(StopHere):
        list(data)
    assert "epoch" not in log


def test_only_evaluations_pass_the_log_writer():
    seen = []
    writer = EvalListener(seen.append)
    writer.log_metrics({"loss": 1.0}, prefix="TRAIN", step=1)
    writer.log_metrics({"acc": 0.5}, prefix="EVAL", step=1)
    writer.log_metrics({"best_acc": 0.5}, prefix="EVAL", step=1)
    assert seen == [{"acc": 0.5}]
