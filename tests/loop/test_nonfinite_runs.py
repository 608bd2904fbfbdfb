"""Runs with a planted bad value: they end by themselves, name it, keep `latest`, and leave something to replay."""

import json

import numpy as np
import paddle
import pytest
from faults import Plant, infinite_pixel, nan_loss, nan_weights, times_1e19
from tiny_runs import metrics

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.cli.main import main
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.incidents import Incidents
from ppocr_ext.loop.session import train

pytestmark = pytest.mark.e2e
BAD = 5  # a step of the second epoch; an epoch has three


def incident(run):
    [folder] = (run / "incidents").iterdir()
    return folder, json.loads((folder / "incident.json").read_text())


def test_an_infinite_pixel_ends_the_run_and_can_be_replayed(tiny, tmp_path, capsys):
    outcome = train(tiny("student"), hooks=[Plant(infinite_pixel, BAD)])
    run = tmp_path / "run"
    assert (outcome.status, outcome.position.global_step) == ("nonfinite", BAD - 1)
    assert json.loads((run / "run.json").read_text())["status"] == "nonfinite"
    latest = Checkpoint(run / "latest")
    assert latest.train_state().position.global_step == 3  # of the epoch before
    assert all(np.isfinite(value).all() for value in latest.weights().values())
    folder, found = incident(run)
    assert (found["step"], found["last_good_step"]) == (BAD, BAD - 1)
    worst = found["samples"][0]
    assert (worst["row"], worst["image"]) == (3, "Infinity")
    assert worst["label"] and worst["needed"] >= len(worst["label"])
    assert not found["weights"]

    capsys.readouterr()
    assert main(["replay", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "conv2d" in said and "backbone." in said  # the first operator, and its layer

    with np.load(folder / "batch.npz") as arrays:
        batch = dict(arrays)
    batch["0"][3, 0, 5, 5] = 0.0
    np.savez(folder / "batch.npz", **batch)
    assert main(["replay", str(folder)]) == 0
    (folder / "batch.npz").write_bytes(b"PK")
    assert main(["replay", str(folder)]) == 2
    assert "damaged_file" in capsys.readouterr().err


def test_nan_weights_are_named_and_never_saved(tiny, tmp_path):
    outcome = train(tiny("distill", **{"Global.epoch_num": 1}), hooks=[Plant(nan_weights, 2)])
    assert outcome.status == "nonfinite"
    _, found = incident(tmp_path / "run")
    assert found["weights"] == ["Student.head.ctc_head.fc.weight"]
    assert any(text.startswith("output Student.ctc") for text in found["bad"])  # and not the teacher's
    assert not any("Teacher" in text for text in found["bad"])
    assert found["samples"][0]["ctc_loss"] == {"Student": "NaN"}
    assert found["weights"][0] in outcome.reason
    assert not list((tmp_path / "run").glob("*.pdparams"))


def test_weights_that_went_bad_after_the_last_step_are_not_saved(tiny, tmp_path):
    outcome = train(tiny("student", **{"Global.epoch_num": 1}), hooks=[Plant(nan_weights, 4)])
    assert (outcome.status, outcome.position.global_step) == ("nonfinite", 3)
    assert "head.ctc_head.fc.weight" in outcome.reason
    assert not list((tmp_path / "run").glob("*.pdparams"))


class States(Hook):
    """Copy the weights and the optimizer's state after each step."""

    def __init__(self):
        self.weights, self.moments, self.rates, self.applied = {}, {}, {}, {}

    def on_start(self, run, training):
        self.run = run
        self.weights[training.start.global_step] = self._copies(run.network.state_dict())

    def on_step(self, step):
        number = step.position.global_step
        self.weights[number] = self._copies(self.run.network.state_dict())
        self.moments[number] = self._copies(self.run.training.optimizer.state_dict())
        self.rates[number] = (step.lr, float(self.run.training.optimizer.get_lr()))
        self.applied[number] = step.applied

    @staticmethod
    def _copies(state):
        return {name: value.numpy().copy() for name, value in state.items() if hasattr(value, "numpy")}


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


def test_a_skipped_step_changes_nothing_and_the_run_goes_on(tiny, tmp_path):
    states = States()
    settings = {"Global.nonfinite": "skip", "Global.nonfinite_limit": 1}
    outcome = train(tiny("student", **settings), hooks=[Plant(times_1e19, 2, 5), states])
    assert (outcome.status, outcome.position.global_step) == ("finished", 6)
    assert states.applied == {1: True, 2: False, 3: True, 4: True, 5: False, 6: True}
    for bad in (2, 5):
        assert_equal(states.weights[bad], states.weights[bad - 1])  # BatchNorm's statistics too
        assert_equal(states.moments[bad], states.moments[bad - 1])
    assert states.rates[3][0] < states.rates[1][0]  # the schedule went on
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines if line.get("skipped")] == [2, 5]


def test_a_run_goes_on_if_an_incident_cannot_be_written(tiny, monkeypatch):
    def full(*parts):
        raise OSError("No space left on device")

    monkeypatch.setattr(Incidents, "_write", full)
    outcome = train(tiny("student", **{"Global.nonfinite": "skip"}), hooks=[Plant(nan_loss, 2)])
    assert (outcome.status, outcome.position.global_step) == ("finished", 6)


def test_a_batch_may_have_entries_that_are_no_tensors(tiny, tmp_path, capsys):
    """As the path of each image has: a list of texts, which no loss reads."""
    settings = {"Global.nonfinite": "skip", "Global.epoch_num": 1}
    for mode in ("Train", "Eval"):
        transforms = tiny("student").thaw()[mode]["dataset"]["transforms"]
        transforms[-1]["KeepKeys"]["keep_keys"].append("img_path")
        settings[f"{mode}.dataset.transforms"] = transforms
    outcome = train(tiny("student", **settings), hooks=[Plant(times_1e19, 2)])
    assert (outcome.status, outcome.position.global_step) == ("finished", 3)
    folder, found = incident(tmp_path / "run")
    assert found["step"] == 2 and main(["replay", str(folder)]) in (0, 1)
    assert "internal error" not in "".join(capsys.readouterr())


def test_too_many_bad_steps_in_a_row_stop_the_run(tiny):
    settings = {"Global.nonfinite": "skip", "Global.nonfinite_limit": 1}
    outcome = train(tiny("student", **settings), hooks=[Plant(nan_loss, 2, 3)])
    assert (outcome.status, outcome.position.global_step) == ("nonfinite", 2)


def test_detect_anomaly_names_operator_and_layer(tiny):
    outcome = train(tiny("student", **{"Global.detect_anomaly": True}), hooks=[Plant(infinite_pixel, 2)])
    assert (outcome.status, outcome.position.global_step) == ("nonfinite", 1)
    assert "conv2d" in outcome.reason and "backbone." in outcome.reason
    assert not paddle.get_flags("FLAGS_check_nan_inf")["FLAGS_check_nan_inf"]
