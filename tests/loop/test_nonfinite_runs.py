"""Runs with a planted bad value: they end by themselves, name it, keep `latest`, and leave something to replay."""

import json

import numpy as np
import pytest
from faults import Plant, infinite_pixel, nan_weights

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.cli.main import main
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
    assert (worst["row"], worst["image"]) == (3, "inf")
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


def test_nan_weights_are_named_and_never_saved(tiny, tmp_path):
    outcome = train(tiny("student", **{"Global.epoch_num": 1}), hooks=[Plant(nan_weights, 2)])
    assert outcome.status == "nonfinite"
    _, found = incident(tmp_path / "run")
    assert found["weights"] == ["head.ctc_head.fc.weight"]
    assert found["weights"][0] in outcome.reason
    assert not list((tmp_path / "run").glob("*.pdparams"))


def test_weights_that_went_bad_after_the_last_step_are_not_saved(tiny, tmp_path):
    outcome = train(tiny("student", **{"Global.epoch_num": 1}), hooks=[Plant(nan_weights, 4)])
    assert (outcome.status, outcome.position.global_step) == ("nonfinite", 3)
    assert "head.ctc_head.fc.weight" in outcome.reason
    assert not list((tmp_path / "run").glob("*.pdparams"))
