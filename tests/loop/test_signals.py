"""When a run is asked to stop: once, more than once, and in the middle of an evaluation."""

import json
import shutil
import signal
import time

import pytest
from error_codes import raises_code
from waiting import HANG

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.errors import DataError
from ppocr_ext.loop import signals
from ppocr_ext.loop.events import Hook, StopRun
from ppocr_ext.loop.session import train
from ppocr_ext.loop.signals import deferred_signals
from ppocr_ext.run.team import Team


@pytest.fixture(autouse=True)
def hangups_count():
    """Also where the tests run under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_termination_that_is_sent_again_at_once_is_the_same_one(monkeypatch):
    monkeypatch.setattr(signals, "_REPEATED", HANG)
    asked = []
    with deferred_signals(asked.append):
        # as Paddle's launcher does, and then systemd at the end of a login
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
    assert asked == [signal.SIGTERM]


def test_a_second_signal_acts_at_once(monkeypatch):
    asked = []
    with pytest.raises(KeyboardInterrupt), deferred_signals(asked.append):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert asked == [signal.SIGINT]
    monkeypatch.setattr(signals, "_REPEATED", 0.05)
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append("default"))
    try:
        with deferred_signals(asked.append):
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.1)
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert asked[1:] == [signal.SIGTERM, "default"]


class RemoveFolder(Hook):
    """Remove the run folder after a step."""

    def on_start(self, run, training):
        self.folder = run.context.folder

    def on_step(self, step):
        if step.position.global_step == 2:
            shutil.rmtree(self.folder)


def test_a_run_whose_folder_was_removed_is_an_error(tiny, tmp_path):
    with raises_code(DataError, "folder_gone", tmp_path / "run"):
        train(tiny("student"), hooks=[RemoveFolder()])
    assert not (tmp_path / "run" / "latest.pdparams").exists()


class HangUp(Hook):
    """Close the terminal before the first step, and once more."""

    def on_start(self, run, training):
        for _ in range(2):
            signal.raise_signal(signal.SIGHUP)


def test_a_hangup_stops_and_saves(tiny, tmp_path):
    outcome = train(tiny("student"), hooks=[HangUp()])
    assert (outcome.status, outcome.signal) == ("stopped", signal.SIGHUP)
    assert (tmp_path / "run" / "latest.pdparams").is_file()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"


class AskDuringEvaluation(Hook):
    """Send a signal after the first batch of an evaluation, and note whether a checkpoint exists after the second."""

    def on_start(self, run, training):
        self.latest = run.context.folder / "latest.pdparams"
        self.batches, self.saved, self.saves = 0, None, []

    def wrap_metric(self, metric):
        def call(*args, **kwargs):
            self.batches += 1
            if self.batches == 1:
                assert not self.latest.exists()
                signal.raise_signal(signal.SIGTERM)
            if self.batches == 2:
                self.saved = self.latest.exists()
            return metric(*args, **kwargs)

        call.get_metric, call.main_indicator = metric.get_metric, metric.main_indicator
        return call

    def on_save(self, prefix, position):
        if prefix.name == "latest":
            self.saves.append(Checkpoint(prefix).weights())


def test_a_stop_during_an_evaluation_saves_before_it_ends(tiny):
    ask = AskDuringEvaluation()
    options = {"Eval.loader.batch_size_per_card": 2, "Global.report": False, "Global.eval_batch_step": [0, 2]}
    options["Global.ema"] = 0.9  # the evaluation sees the average, the checkpoint does not
    outcome = train(tiny("student", **options), hooks=[ask])
    assert ask.saved
    assert (outcome.status, outcome.position.global_step) == ("stopped", 2)
    early, late = ask.saves
    assert all((value == late[name]).all() for name, value in early.items())


def test_a_signal_while_the_processes_agree_counts_at_the_next_step(tiny, monkeypatch):
    told = []

    def highest(team, mine):
        told.append(mine)
        if len(told) == 2:  # the others hear that this process goes on
            signal.raise_signal(signal.SIGTERM)
        return mine

    monkeypatch.setattr(Team, "highest", highest)
    outcome = train(tiny("student", **{"Global.report": False}))
    assert told == [0, 0, StopRun("").seriousness]
    assert (outcome.status, outcome.signal, outcome.position.global_step) == ("stopped", signal.SIGTERM, 2)


class AskInLastStep(Hook):
    """Ask to stop in the last step of the run."""

    def on_step(self, step):
        if step.position.global_step == step.position.total_steps:
            self.loop.request_stop("nothing is learned", status="collapsed", save_latest=False)


def test_a_hook_stops_a_run_that_keeps_its_latest(tiny, tmp_path):
    outcome = train(tiny("student"), hooks=[AskInLastStep()])
    assert (outcome.status, outcome.reason) == ("collapsed", "nothing is learned")
    assert (
        Checkpoint(tmp_path / "run" / "latest").train_state().position.global_step == 3
    )  # of the epoch before
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "collapsed"


def test_the_more_serious_stop_wins():
    stops = [
        StopRun("", status=status, save_latest=save).seriousness
        for status in ("finished", "stopped", "collapsed", "nonfinite")
        for save in (True, False)
    ]
    assert stops == sorted(set(stops))
    for seriousness in stops:
        assert StopRun.of_seriousness(seriousness).seriousness == seriousness
