"""The ranges of the monitors follow from the recorded runs."""

import json

import pytest
from experiments.healthy_runs import columns_of, ranges_of, write_ranges

from ppocr_ext.loop.hooks.collapse_rules import HEALTHY_RUNS
from ppocr_ext.report.run_folder import Metrics


def test_the_written_ranges_are_those_of_the_recorded_runs():
    content = json.loads(HEALTHY_RUNS.read_text(encoding="utf-8"))
    assert ranges_of(content["runs"]) == content["ranges"]


def test_ranges_are_wider_than_what_a_run_recorded():
    step = {"blank_probability": 0.5, "distinct_texts": 1.0, "text_length": 2.0, "nrtr_end_share": 0.0}
    train = [{"step": n, "blank_share": 1.0, "first_loss_Student": 4.0, **step} for n in (10, 20, 3010)]
    evals = [{"step": 15, "acc": 0.9, "nrtr_empty": 0.5}, {"step": 3010, "acc": 0.6, "nrtr_empty": 0.8}]
    found = ranges_of({"mine": columns_of(Metrics(train, evals))})
    assert found["first_loss"] == {"recorded": 4.0, "limit": 8.0}
    assert found["blank_steps"] == found["same_text_steps"] == {"recorded": 3000, "limit": 12000}
    assert found["nrtr_empty"] == {"recorded": 0.8, "limit": pytest.approx(0.9)}
    assert found["accuracy_drop"] == {"recorded": pytest.approx(0.3), "limit": pytest.approx(0.6)}


def test_a_run_is_added_to_those_of_the_file(tmp_path):
    file, run = tmp_path / "runs.json", tmp_path / "run"
    file.write_text(HEALTHY_RUNS.read_text(encoding="utf-8"), encoding="utf-8")
    before = json.loads(file.read_text(encoding="utf-8"))
    write_ranges(tmp_path, [], file)
    assert json.loads(file.read_text(encoding="utf-8")) == before
    run.mkdir()
    line = {"kind": "eval", "step": 5, "epoch": 1, "acc": 0.9, "nrtr_empty": 0.6}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    write_ranges(tmp_path, [run], file)
    after = json.loads(file.read_text(encoding="utf-8"))
    assert after["runs"] == {**before["runs"], str(run): columns_of(Metrics([], [line]))}
    assert after["ranges"]["nrtr_empty"] == {"recorded": 0.6, "limit": pytest.approx(0.8)}
