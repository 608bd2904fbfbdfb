"""The loader: over which dataset and sampler, what a training reads of it, and exceptions with and without workers."""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from waiting import HANG

from ppocr_ext.charset import Charset
from ppocr_ext.data.mixing import MixedList, MixedSamples
from ppocr_ext.data.sample_seeds import ShareOfBatches, Views
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.host import open_host
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.host_config import host_config
from ppocr_ext.run.loader import (
    Loader,
    LoaderParts,
    SeededBatches,
    _is_ending,
    loader_parts,
)
from ppocr_ext.run.loader_setup import label_check

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


WITHOUT_MEMORY = """
import errno, gc, multiprocessing as own, sys
from paddle.incubate import multiprocessing
from ppocr_ext.run.loader import Loader
from test_loader import parts

gc.disable()  # what keeps Paddle's iterator alive stays until the process ends
queue, left = multiprocessing.Queue, [int(sys.argv[1])]

def limited(*args):
    left[0] -= 1
    if left[0] < 0:
        raise OSError(errno.ENOSPC, "No space left on device")
    return queue(*args)

multiprocessing.Queue = limited
try:
    list(Loader(parts(workers=3), seed=7))
except Exception as error:
    print(type(error).__name__, error.code)
for process in own.active_children():
    process.join()
"""


@pytest.mark.parametrize("queues", [0, 1, 3])
def test_a_loader_without_shared_memory_for_its_queues_ends_with_its_process(queues):
    """The workers that have started wait for work; /dev/shm has a lock for each queue."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY, str(queues)],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [Path(__file__).parent, *sys.path]))},
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "DataError no_shared_memory"), done.stderr
    assert "Exception ignored" not in done.stderr


def test_the_host_s_collate_function_is_taken_and_keys_that_cannot_be_used_are_named(tiny):
    def parts_of(loader, **values):
        config = host_config(tiny("student", **values))
        return loader_parts(
            open_host(), {**config, "Train": {**config["Train"], "loader": loader}}, "Train", 3
        )

    loader = {"batch_size_per_card": 2, "drop_last": False, "shuffle": False, "num_workers": 0}
    assert type(parts_of({**loader, "collate_fn": "ListCollator"}).collate).__name__ == "ListCollator"
    without = {key: value for key, value in loader.items() if key != "shuffle"}
    with raises_code(ConfigError, "missing_key", "Train.loader", "shuffle"):
        parts_of(without)
    with raises_code(ConfigError, "unknown_component", "Train.loader.collate_fn", "'Nothing'"):
        parts_of({**loader, "collate_fn": "Nothing"})
    with raises_code(ConfigError, "unknown_component", "Train.sampler.name", "'Nothing'"):
        parts_of(loader, **{"Train.sampler": {"name": "Nothing"}})


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


def test_the_views_of_mixed_lists_are_read_in_turn_by_all_processes():
    """Each epoch, a process gets another number of the ten samples in batches of four."""
    datasets = [Numbers(10), Numbers(500)]
    mixed = MixedSamples(datasets, [MixedList("Train.mix.0", Fraction(1), True)])
    sampler = ShareOfBatches(mixed, 4, num_replicas=2, rank=0)
    seen = []
    for rank in range(2):
        data = Loader(LoaderParts(mixed, sampler), rank=rank, processes=2, views=Views(1, 2))
        for epoch in range(1, 9):
            batches = data._mixed(data._of_epoch(data.views, epoch), epoch)
            seen += [place for batch in batches for place in batch if place >= 10]
    assert len(set(seen)) == len(seen) > 80


def test_workers_start_when_the_threads_before_them_are_gone(monkeypatch):
    """A thread that is ending may hold a lock of Paddle, which a worker that is forked then would never get."""
    asked = iter([True] * 50)
    monkeypatch.setattr(
        "ppocr_ext.run.loader._is_ending", lambda thread: not thread.is_alive() and next(asked, False)
    )
    list(Loader(parts(), seed=7))
    list(Loader(parts(workers=1), seed=7))
    assert next(asked, False) is False


def test_a_thread_is_ending_while_only_linux_has_it():
    ended = threading.Thread(target=int)
    ended.start(), ended.join()
    while Path(f"/proc/self/task/{ended.native_id}").exists():
        pass
    here = SimpleNamespace(is_alive=lambda: False, native_id=threading.get_native_id())
    assert _is_ending(here) and not _is_ending(threading.current_thread()) and not _is_ending(ended)


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


def test_each_epoch_has_another_order_and_the_same_one_in_every_run():
    log = Log()
    first, second = trained(log), trained(Log())
    epochs = [order(list(first)) for _ in range(2)]
    assert epochs == [order(list(second)) for _ in range(2)]
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == list(range(10))
    assert len(first) == 5 and log == (["boundary"] * 5 + ["epoch"]) * 2


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


DIGITS = Charset(tuple("0123456789"))


class PluginLabels:
    """A dataset of a user's own, which encodes its labels itself."""

    def __init__(self, config, mode, logger, seed=None):
        pass

    @classmethod
    def known_keys(cls):
        return ()

    def __len__(self):
        return 24

    def __getitem__(self, index):
        ctc, nrtr = np.zeros(8, np.int64), np.zeros(8, np.int64)
        ctc[: len(self.ids)], nrtr[0] = self.ids, self.second
        return [np.zeros((3, 32, 128), np.float32), ctc, nrtr, np.array(len(self.ids)), np.float64(1)]


@pytest.fixture
def loader(tiny, monkeypatch):
    """``loader(ids, second)``: a loader of these labels for CTC, which has 7 frames, and for NRTR."""
    monkeypatch.setitem(DATASETS._own, "PluginLabels", PluginLabels)
    transforms = tiny("student").thaw()["Train"]["dataset"]["transforms"]
    kept = [entry for entry in transforms if "MultiLabelEncode" in entry or "KeepKeys" in entry]
    config = tiny("student", **{"Train.dataset": {"name": "PluginLabels", "transforms": kept}})

    def build(ids, second=2):
        monkeypatch.setattr(PluginLabels, "ids", ids, raising=False)
        monkeypatch.setattr(PluginLabels, "second", second, raising=False)
        check = label_check(config, DIGITS, lambda height, width: 7)
        return Loader(loader_parts(open_host(), host_config(config), "Train", 1), check)

    return build


@pytest.mark.parametrize(
    ("ids", "second", "code", "facts"),  # the sample's own ids, and the number that is wrong or its limit
    [
        ([1, 11, 3], 2, "bad_label", ("[1, 11, 3]", "1 to 10")),
        ([1, -1, 3], 2, "bad_label", ("[1, -1, 3]", "1 to 10")),
        ([1, 0, 3], 2, "bad_label", ("[1, 0, 3]", "class 0")),
        ([], 2, "bad_label", ("no label of the batch",)),
        ([1, 2, 3, 3, 4, 4], 2, "too_long_for_frames", ("[1, 2, 3, 3, 4, 4]", "8 frames", "7")),
        ([1, 2, 3], 99, "bad_label", ("99", "0 to 14")),
    ],
    ids=["too high", "below 0", "blank inside", "empty", "too long for frames", "second label"],
)
def test_each_fault_ends_the_run(loader, ids, second, code, facts):
    with raises_code(DataError, code, "Train.dataset.transforms: ", *facts):
        list(loader(ids, second))


def test_right_labels_are_read_and_nothing_is_said(loader, caplog):
    assert len(list(loader([1, 2, 2, 3]))) == 3  # 24 samples in batches of 8
    assert caplog.messages == []


def test_labels_are_checked_where_something_trains_with_ctc(tiny):
    for kind in ("student", "distill"):
        assert label_check(tiny(kind), DIGITS, None) is not None
    assert label_check(tiny("student", Loss={"name": "NRTRLoss"}), DIGITS, None) is None
    kept = {"Train.dataset.transforms": [{"KeepKeys": {"keep_keys": ["image", "text"]}}]}
    assert label_check(tiny("student", **kept), DIGITS, None) is None
