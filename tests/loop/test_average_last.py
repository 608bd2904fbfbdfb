"""The mean of the last checkpoints of a run."""

import json
import pickle

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint.averages import mean_weights
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.errors import WeightsError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.session import train
from ppocr_ext.report.formats import percent
from ppocr_ext.report.run_page import write_report
from ppocr_ext.run.run import Run


def save(prefix, **weights):
    prefix.with_suffix(".pdparams").write_bytes(pickle.dumps(weights, protocol=4))
    return prefix


def test_the_mean_is_that_of_each_number(tmp_path):
    rng = np.random.default_rng(0)
    floats = rng.normal(size=(3, 4, 5)).astype("float32")
    prefixes = [
        save(tmp_path / f"iter_epoch_{index}", a=value, n=np.array(index))
        for index, value in enumerate(floats)
    ]
    found = mean_weights(prefixes)
    assert found["a"].dtype == np.float32 and found["n"] == 2
    np.testing.assert_allclose(found["a"], floats.astype("float64").mean(axis=0), rtol=1e-7)
    same = mean_weights([prefixes[0]] * 3)["a"]
    np.testing.assert_array_equal(same, floats[0])  # what is frozen stays as it is
    other = save(tmp_path / "iter_epoch_9", a=floats[0, :2], n=np.array(1))
    with raises_code(WeightsError, "shape_mismatch", other):
        mean_weights([*prefixes, other])


@pytest.mark.e2e
def test_a_run_ends_with_the_mean_of_its_last_checkpoints(tiny, tmp_path):
    """A resumed one replaces it; it evaluates to the recorded number."""
    run = tmp_path / "run"
    settings = {"Global.average_last": 2, "Global.save_epoch_step": 1, "Global.dry_step": False}
    train(tiny("distill", **settings))
    longer = {**settings, "Global.epoch_num": 3, "Global.checkpoints": str(run / "latest")}
    train(tiny("distill", **longer))
    record = json.loads((run / "run.json").read_text())
    assert (record["status"], record["averaged"]["of"]) == ("finished", ["iter_epoch_2", "iter_epoch_3"])
    last = [Checkpoint(run / name).weights() for name in record["averaged"]["of"]]
    averaged = Checkpoint(run / "averaged")
    for name, value in averaged.weights().items():
        np.testing.assert_allclose(value, (last[0][name] + last[1][name]) / 2, rtol=1e-5, atol=1e-7)
    config = tiny("distill", **{"Global.checkpoints": str(averaged.prefix)})
    found = evaluate(Run.build(config, "eval")).metrics
    metrics = record["averaged"]["metrics"]
    assert (
        found["norm_edit_dis"] == pytest.approx(metrics["norm_edit_dis"], abs=1e-12) and metrics["acc"] == 0
    )
    with raises_code(WeightsError, "weights_alone", "Global.pretrained_model"):
        train(tiny("distill", **{**longer, "Global.checkpoints": str(averaged.prefix)}))
    write_report([run], tmp_path / "page.html")
    assert f"iter_epoch_2, iter_epoch_3: {percent(0.0)}" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("changes", [{}, {"save_epoch_step": 2}, {"save_epoch_step": 1, "keep_last": 1}])
def test_fewer_checkpoints_than_are_averaged_are_an_error(tiny, changes):
    given = {f"Global.{name}": value for name, value in changes.items()}
    with raises_code(InvalidConfigError, "conflicting_keys", "average_last"):
        train(tiny("student", **{"Global.average_last": 2}, **given))
