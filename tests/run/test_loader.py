"""The loader: over which dataset and sampler, what a training reads of it, and exceptions with and without workers."""

import json
import logging
import multiprocessing
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from waiting import HANG

from ppocr_ext.errors import ConfigError
from ppocr_ext.host import Host, open_host
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.loader import Loader, LoaderParts, SeededBatches, ShareOfBatches, loader_parts

LOG = logging.getLogger("test")
BROKEN = ["DataError", "Train: list.txt:6: broken", "failed_sample"]


def test_exceptions_are_raised_after_the_batches_before_them():
    """With Paddle's own loader some would wait for ever, or raise another exception."""
    script = Path(__file__).with_name("failing_loaders.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    unsendable = "UnsendableError: of two parts"
    for workers, found in json.loads(done.stdout.splitlines()[-1]).items():
        assert found["numbers"] == [list(range(8))] * 2
        for epoch in found["failing"]:
            assert epoch[:4] == [2, *BROKEN]
            assert ("__getitem__" in epoch[4]) == (workers == "1")  # the traceback of the worker process
        sent = ["RuntimeError", unsendable] if workers == "1" else unsendable.split(": ")
        assert found["unsendable"][:3] == [0, *sent]
        assert found["uneven"][:2] == [0, "ValueError"]
        assert found["sampler"][:3] == [1, "RuntimeError", unsendable]
        # a prefetched batch of Train fails; an evaluation is read before that is known, and fails too
        evaluated, trained = found["in turns"]
        assert "of two parts" in evaluated[2] and trained[:4] == [1, *BROKEN]
        assert found["hook is as before"]


@pytest.fixture(scope="module")
def host() -> Host:
    return open_host()


def loader_config(name: str, **changes: Any) -> dict[str, Any]:
    loader = {"batch_size_per_card": 2, "drop_last": False, "shuffle": False, "num_workers": 0, **changes}
    return {
        "Global": {"max_text_length": 25},
        "Train": {"dataset": {"name": name, "size": 5}, "loader": loader},
        "Eval": {"dataset": {"name": name, "size": 5}, "loader": loader},
    }


@pytest.fixture
def counting_dataset() -> Iterator[str]:
    """A dataset of ours, 0 to size - 1, registered as a plugin would; its name."""
    from paddle.io import Dataset

    class CountingDataSet(Dataset):
        need_reset = False

        def __init__(self, config: dict[str, Any], mode: str, logger: logging.Logger, seed: int) -> None:
            super().__init__()
            assert (mode, logger, seed) in (("Train", LOG, 3), ("Eval", LOG, 3))
            self.size = config[mode]["dataset"].pop("size")  # as the host's own do

        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            return np.full([1], index, dtype="int64"), index

        def __len__(self) -> int:
            return self.size

    DATASETS.register("CountingDataSet")(CountingDataSet)
    yield "CountingDataSet"
    del DATASETS._own["CountingDataSet"]


def test_a_loader_of_ours_takes_the_hosts_sampler_and_collate_function(
    host: Host, counting_dataset: str
) -> None:
    config = loader_config(counting_dataset, collate_fn="ListCollator")
    config["Train"]["sampler"] = {"name": "BatchSampler", "batch_size": 4}
    parts = loader_parts(host, config, "Train", 3, logger=LOG)
    assert [len(batch[0]) for batch in Loader(parts)] == [4, 1]
    assert type(parts.collate).__name__ == "ListCollator"


@pytest.mark.parametrize(
    ("change", "code", "facts"),
    [
        (lambda c: c["Train"]["loader"].pop("shuffle"), "missing_key", ["Train.loader", "shuffle"]),
        (
            lambda c: c["Train"].update(sampler={"name": "Nothing"}),
            "unknown_component",
            ["Train.sampler.name", "'Nothing'"],
        ),
        (
            lambda c: c["Train"]["loader"].update(collate_fn="Nothing"),
            "unknown_component",
            ["Train.loader.collate_fn", "'Nothing'"],
        ),
    ],
)
def test_loader_keys_that_cannot_be_used(
    host: Host, counting_dataset: str, change: Any, code: str, facts: list[str]
) -> None:
    config = loader_config(counting_dataset)
    change(config)
    with raises_code(ConfigError, code, *facts):
        loader_parts(host, config, "Train", 3, logger=LOG)


class Numbers(paddle.io.Dataset):
    """Item i is (i, a random draw), so that order and randomness can both be seen."""

    def __init__(self, count=10):
        super().__init__()
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return (np.array([index, random.randrange(10**6), np.random.randint(10**6)]),)


def parts(batch_size=2, count=10, workers=0):
    dataset = Numbers(count)
    sampler = paddle.io.DistributedBatchSampler(dataset, batch_size, num_replicas=1, rank=0, shuffle=True)
    return LoaderParts(dataset, sampler, workers=workers)


class Log(list):
    def boundary(self):
        self.append("boundary")

    def epoch(self):
        self.append("epoch")


def trained(log, first_epoch=1, skip=0, **options):
    data = Loader(parts(**options), seed=7)
    data.train(first_epoch, skip, log.boundary, log.epoch)
    return data


def order(batches):
    return [int(i) for batch in batches for i in batch[0].numpy()[:, 0]]


@pytest.mark.parametrize(("count", "size"), [(10, 1), (24, 2), (7, 3), (2, 3), (1, 4)])
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True}])
def test_a_share_has_the_batches_of_paddles_sampler(count, size, options):
    for rank in range(size):
        theirs, ours = (
            kind(Numbers(count), 3, num_replicas=size, rank=rank, **options)
            for kind in (paddle.io.DistributedBatchSampler, ShareOfBatches)
        )
        for _ in range(2):  # each epoch has another order
            assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)


def test_an_epoch_has_its_length_and_its_boundaries():
    log = Log()
    data = trained(log)
    assert len(data) == 5
    assert sorted(order(list(data))) == list(range(10))
    assert log == ["boundary"] * 5 + ["epoch"]


def test_each_epoch_has_another_order_and_the_same_one_in_every_run():
    first, second = trained(Log()), trained(Log())
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
        data = Loader(LoaderParts(Numbers(), Scales()), seed=7, rank=rank)
        data.train(1, 1, log.boundary, log.epoch)
        seen.append(np.concatenate([batch[0].numpy() for batch in data]))
    first, second = seen
    assert len(first) == 8  # one batch was done before
    np.testing.assert_array_equal(first[:, 0], second[:, 0])
    assert not (first[:, 1:] == second[:, 1:]).any()


def test_a_resumed_run_sees_the_batches_it_would_have_seen():
    whole = trained(Log())
    list(whole)
    expected = order(list(whole))
    log = Log()
    resumed = trained(log, first_epoch=2, skip=3)
    assert len(resumed) == 5  # the schedule and the host count full epochs
    assert order(list(resumed)) == expected[6:]
    assert log == ["boundary"] * 2 + ["epoch"]
    assert len(order(list(resumed))) == 10  # and the epoch after is whole again


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_sample_draws_depends_on_its_position_alone(workers):
    def draws(data):
        return np.concatenate([b[0].numpy()[:, 1:] for b in data])

    whole = trained(Log())
    first, second = draws(whole), draws(whole)
    resumed = draws(trained(Log(), first_epoch=2, skip=3, workers=workers))
    np.testing.assert_array_equal(second[6:], resumed)
    assert len(np.unique(np.concatenate([first, second]))) > 35  # of 40: no two samples draw alike


def test_an_epoch_leaves_the_generators_as_they_were():
    random.seed(5), np.random.seed(5)
    expected = random.random(), np.random.random()
    random.seed(5), np.random.seed(5)
    list(trained(Log()))
    assert (random.random(), np.random.random()) == expected


def test_the_host_never_rebuilds_but_we_do():
    made = []

    def rebuild(epoch):
        made.append(epoch)
        return parts()

    first = parts()
    first.dataset.need_reset = True
    data = Loader(first, seed=7, rebuild=rebuild)
    data.train(1, 0, Log().boundary, Log().epoch)
    for _ in range(3):
        list(data)
        assert data.dataset.need_reset is False
    assert made == [2, 3]


@pytest.mark.parametrize("skip", [0, 3])
def test_an_epoch_leaves_no_worker_process_behind(skip):
    before = set(multiprocessing.active_children())
    assert len(list(trained(Log(), skip=skip, workers=1))) == 5 - skip
    assert set(multiprocessing.active_children()) <= before


def test_a_stop_at_a_boundary_leaves_the_epoch():
    class StopHere(BaseException):  # noqa: N818
        pass

    def stop():
        raise StopHere

    log = Log()
    data = Loader(parts())
    data.train(1, 0, stop, log.epoch)
    with pytest.raises(StopHere):
        list(data)
    assert "epoch" not in log


def test_positions_count_the_batches_that_were_done_before():
    batches = [[4, 7], [(32, 48, 1, None)], [2, 0, 5]]
    whole = list(SeededBatches(batches, (9, 3, 1)))
    assert [item.index for batch in whole for item in batch] == [4, 7, (32, 48, 1, None), 2, 0, 5]
    assert [item.seed for batch in whole for item in batch] == [(9, 3, 1, n) for n in range(6)]
    rest = SeededBatches(batches, (9, 3, 1), skip=2)
    assert (len(rest), list(rest)) == (1, whole[2:])
