"""A lost process is named, and ends the others; here over a store in memory."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from test_team import Store
from waiting import wait_for

from ppocr_ext.run import peers as module
from ppocr_ext.run.peers import Board, Peers, Watch


class Ended(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def watches(monkeypatch):
    """Build the watches of some processes over one store; ``ended`` gets the exit codes of their processes."""
    monkeypatch.setenv("PADDLE_DISTRI_BACKEND", "gloo")
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", "10.0.0.7:1234")
    monkeypatch.setattr(module, "_LOOK_EVERY", 0.02)
    monkeypatch.setattr(module, "_STUCK", 0.1)
    monkeypatch.setattr(module, "_place_of_main_thread", lambda: None)  # it is in a collective
    monkeypatch.setattr(module.signal, "alarm", lambda seconds: None)
    ended, store, begun = [], Store(), []

    def leave(code):
        ended.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(threading, "excepthook", lambda found: None)

    def begin(rank, machine="here", own=None):
        monkeypatch.setattr(module, "machine_name", lambda: machine)
        member = Peers(Board(own or store), rank, 2)
        member.join("log/workerlog.0")
        monkeypatch.setattr(module, "machine_name", lambda: "here")
        begun.append(Watch(member))
        return begun[-1]

    begin.ended, begin.store = ended, store
    yield begin
    for watch in begun:
        watch.stop()


def test_a_process_without_a_sign_of_life_ends_the_others_with_its_address(watches):
    first, said = watches(0), []
    first.record = said.append
    first.step = lambda: 12
    second = watches(1, "another machine")
    wait_for(lambda: first._peers.known)
    first._peers.publish_saved("run/latest", 10)
    time.sleep(0.2)
    assert not watches.ended  # both live
    second.stop()  # as one that was stopped, or cannot be reached
    first.patience = 0.2
    wait_for(lambda: watches.ended)
    assert watches.ended == [2]
    [reason] = said
    assert "Process 1 of 2 (10.0.0.7; its messages: log/workerlog.0) has given no sign of life for " in reason
    assert "after step 12. Its last checkpoint: run/latest (step 10)" in reason


def test_a_store_that_never_answers_is_process_0(watches):
    answer = threading.Event()

    class Silent(Store):
        def add(self, key, count):
            if self.silent:
                answer.wait()
            return super().add(key, count)

    store = Silent()
    store.silent = False
    watches(0, "another machine", store)
    second, said = watches(1, own=store), []
    second.record = said.append
    wait_for(lambda: second._peers.known)
    second.patience = 0.2
    store.silent = True
    wait_for(lambda: watches.ended)
    answer.set()
    assert said[0].startswith("Process 0 of 2 (10.0.0.7")


def test_a_process_that_has_noticed_may_finish_its_work(watches, monkeypatch):
    monkeypatch.setattr(module, "_LAST_WORK", 0.5)
    first = watches(0)
    first.noticed.set()
    watches.store.texts["ppocr_ext/0/failed/1"] = "the disk is full"
    watches.store.counts |= {"ppocr_ext/0/failures": 1, "ppocr_ext/0/failed/1/there": 1}
    began = time.monotonic()
    wait_for(lambda: watches.ended)
    assert time.monotonic() - began > 0.5


def test_a_process_that_still_works_is_not_ended_at_once(watches, monkeypatch):
    places = iter(range(10**9))
    monkeypatch.setattr(module, "_place_of_main_thread", lambda: (0, next(places)))  # it saves, say
    monkeypatch.setattr(module, "_LAST_WORK", 0.5)
    first, second = watches(0), watches(1, "another machine")
    wait_for(lambda: first._peers.known)
    second.stop()
    first.patience = 0.1
    began = time.monotonic()
    wait_for(lambda: watches.ended)
    assert time.monotonic() - began > 0.5


def test_a_pause_of_all_processes_ends_none(watches, monkeypatch):
    first, second = watches(0), watches(1, "another machine")
    wait_for(lambda: first._peers.known and second._peers.known)
    paused = threading.Event()
    monkeypatch.setattr(
        Peers, "failure", lambda self: paused.wait() and None
    )  # as if their threads did not run
    first.patience = second.patience = 0.1
    wait_for(first.silent)
    monkeypatch.setattr(module, "_STUCK", 1.0)
    paused.set()
    time.sleep(2)
    assert not watches.ended


def test_an_unwritable_record_is_said_and_hides_nothing(watches, caplog, monkeypatch):
    monkeypatch.setattr(module.LOG, "propagate", True)
    first = watches(0)

    def fail(reason):
        raise ValueError("run.json is damaged")

    first.record = fail
    first.note("lost")
    assert "run.json is damaged" in caplog.text


def test_clocks_of_machines_are_not_compared(watches, monkeypatch):
    watches(0).patience = 0.5
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 24 * 3600)
    watches(1, "another machine").patience = 0.5
    time.sleep(1)
    assert not watches.ended


CRASH = """
import ctypes, os, resource, threading
from ppocr_ext.run.peers import _delay_crashes
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
end = _delay_crashes({seconds})
threading.Timer(0.5, lambda: os._exit(7)).start()
{ends}
ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()  # as for an exception that nothing catches
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the C++ library is Linux's")
@pytest.mark.parametrize(
    ("seconds", "ends", "code"), [(60, "", 7), (0.01, "", -signal.SIGABRT), (60, "end()", -signal.SIGABRT)]
)
def test_a_crash_waits_for_the_watch(seconds, ends, code):
    words = [sys.executable, "-c", CRASH.format(seconds=seconds, ends=ends)]
    assert subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode == code
