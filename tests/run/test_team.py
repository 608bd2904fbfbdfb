"""Processes that wait for each other and fail together: here threads over a store in memory."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
from waiting import HANG

from ppocr_ext.errors import DataError, ProcessError
from ppocr_ext.run import freezing, peers
from ppocr_ext.run import team as module
from ppocr_ext.run.team import Team


class Store:
    """As Paddle's TCPStore; ``closed`` as when process 0 has ended."""

    def __init__(self):
        self.counts, self.texts, self.lock, self.closed = {}, {}, threading.Lock(), False

    def add(self, key, count):
        if self.closed:
            raise ValueError("TCP receive error")
        with self.lock:
            self.counts[key] = self.counts.get(key, 0) + count
            return self.counts[key]

    def set(self, key, value):
        if self.closed:
            raise ValueError("TCP send error")
        self.texts[key] = value

    def get(self, key):
        if self.closed:
            raise ValueError("TCP receive error")
        return self.texts[key].encode()


@pytest.fixture
def two(monkeypatch, tmp_path):
    """Two members over one store, on one machine whose first is number 0."""
    monkeypatch.setenv("PADDLE_LOG_DIR", "/logs")
    monkeypatch.setenv("PADDLE_LOCAL_RANK", "1")
    monkeypatch.setenv("PPOCR_EXT_PROCESSES_FOLDER", str(tmp_path / "handed_on"))
    monkeypatch.setattr(module, "_leader_of", lambda rank: 0)
    store = Store()
    return [Team(store, rank, 2) for rank in (0, 1)]


def together(*works):
    """Results, or errors, of works that run at the same time."""
    results = [None] * len(works)

    def keep(place, work):
        try:
            results[place] = work()
        except Exception as fault:
            results[place] = fault

    threads = [threading.Thread(target=keep, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive()
    return results


def test_the_first_waits_for_the_last_each_time(two):
    first, second = two
    seen = []

    def slow():
        for step in range(3):
            time.sleep(0.1)
            seen.append(step)
            second.barrier()

    def quick():
        for step in range(3):
            first.barrier()
            assert seen[: step + 1] == list(range(step + 1))

    assert together(slow, quick) == [None, None]


def test_one_process_waits_for_nobody():
    alone = Team()
    alone.barrier()
    assert alone.highest(3) == alone.total(3) == 3
    assert alone.once_per_machine("work", lambda: 3, str, int) == 3
    assert alone.text_of_first("word", "yes") == "yes"


def test_work_is_done_once_and_its_result_or_error_handed_on(two):
    done = []

    def work():
        done.append(1)
        return Path("usable.txt")

    def fail():
        raise DataError("no usable line", code="no_batch")

    def of_both(work):
        return together(*(lambda each=each: each.once_per_machine("look", work, str, Path) for each in two))

    for _ in range(2):  # a second run of the same process
        assert of_both(work) == [Path("usable.txt")] * 2
    assert len(done) == 2
    assert [(str(fault), fault.code) for fault in of_both(fail)] == [("no usable line", "no_batch")] * 2


def test_what_process_0_says_is_what_all_hear(two):
    first, second = two
    for word in ("one", "two"):
        words = together(
            lambda word=word: first.text_of_first("lines", word), lambda: second.text_of_first("lines", "no")
        )
        assert words == [word, word]


def test_a_failure_ends_the_waiting_of_the_others_with_its_words(two):
    first, second = two

    def fail():
        second.fail(DataError("the disk is full"))

    _, fault = together(fail, first.barrier)
    assert isinstance(fault, ProcessError) and fault.code == "process_failed"
    assert (
        "Process 1 of 2 (this machine; its messages: /logs/workerlog.1) has failed: the disk is full"
        in str(fault)
    )
    # a collective that broke because of it is not this process's own failure
    with pytest.raises(ProcessError, match="the disk is full"):
        first.fail(RuntimeError("gloo: connection closed by peer"))


def test_a_process_that_is_killed_ends_the_waiting_of_the_others(two):
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({2 * HANG})"])
    first, second = two
    second._board.publish("process/1", f"{peers.machine_name()}\n{child.pid}\n10.0.0.2\nlog/workerlog.1")
    threading.Timer(0.3, child.kill).start()
    began = time.monotonic()
    with pytest.raises(
        ProcessError, match=r"1 of 2 \(10.0.0.2; its messages: log/workerlog\.1\) has failed: killed"
    ):
        first.barrier()
    assert time.monotonic() - began < HANG
    child.wait()


def test_the_end_of_process_0_ends_the_waiting_of_the_others(two):
    _, second = two
    second._board._store.closed = True
    with pytest.raises(ProcessError, match="Process 0 of 2 has ended"):
        second.barrier()


def test_an_error_of_its_own_is_not_lost_if_process_0_has_ended(two):
    _, second = two
    second._board._store.closed = True
    second.fail(DataError("no usable line"))  # raises nothing, so the error itself is printed


def test_a_process_that_is_done_is_not_missed(two, monkeypatch):
    first, second = two
    monkeypatch.setattr(peers, "is_running", lambda pid: pid != os.getpid())  # all are gone
    monkeypatch.setattr(module, "_BLAME_WITHIN", 0.1)
    second.leave()
    first.fail(RuntimeError("of its own"))  # tells the others, and blames nobody
    assert first._board._store.counts["ppocr_ext/0/failures"] == 1


def test_the_trial_of_a_loss_leaves_no_trace(monkeypatch):
    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.norm = paddle.nn.BatchNorm1D(3)
            self.used, self.unused = paddle.nn.Linear(3, 2), paddle.nn.Linear(3, 2)

        def forward(self, x, data=None):
            return self.used(self.norm(x))

    monkeypatch.setattr(freezing.dist, "all_reduce", lambda tensor, op: None)
    model = Net()
    before = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
    batch = [paddle.rand([4, 3]) + 5]
    freezing.freeze_untouched(model, lambda found, batch: {"loss": found.sum()}, batch)
    trained = {name for name, parameter in model.named_parameters() if not parameter.stop_gradient}
    assert trained == {"norm.weight", "norm.bias", "used.weight", "used.bias"}
    for name, tensor in model.state_dict().items():  # BatchNorm's statistics too
        np.testing.assert_array_equal(tensor.numpy(), before[name], err_msg=name)


def test_a_result_that_went_with_its_process_is_that_process_s_failure(two, monkeypatch):
    first, second = two
    monkeypatch.setattr(module, "_BLAME_WITHIN", 0.1)
    first._board.publish("work/0/look/1", "")
    first.fail(DataError("no usable line"))
    with pytest.raises(ProcessError, match="has failed: no usable line"):
        second.once_per_machine("look", lambda: None, str, str)


def test_small_messages_are_sent_at_once():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert not client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        before = len(list(Path("/proc/self/fd").iterdir()))
        module._send_at_once()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
