"""metrics.jsonl is read as it was written, and curves of any number of runs are drawn."""

from __future__ import annotations

import json
import math

import cv2
import pytest

from ppocr_ext.errors import DataError
from ppocr_ext.report.curves import draw_curves
from ppocr_ext.report.metrics_file import read_metrics


def train_line(step, loss=1.0, **more):
    return {
        "kind": "train",
        "epoch": 1,
        "step": step,
        "time": step / 2,
        "lr": 1e-3,
        "loss": loss,
        "ips": 80.0,
        **more,
    }


def eval_line(step, acc):
    return {"kind": "eval", "epoch": 1, "step": step, "acc": acc, "norm_edit_dis": acc}


def write(path, *lines, tail=""):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return path


def test_series_have_steps_and_values(tmp_path):
    file = write(
        tmp_path / "metrics.jsonl",
        train_line(10, 4.0, losses={"loss_ctc": 3.0, "loss_nrtr": 1.0}),
        eval_line(15, 0.5),
        train_line(20, None, losses={"loss_ctc": None}),
    )
    for path in (file, tmp_path):
        metrics = read_metrics(path)
        assert metrics.train_series("loss").steps == [10, 20]
        assert metrics.train_series("loss").values[0] == 4.0 and math.isnan(
            metrics.train_series("loss").values[1]
        )
        assert metrics.loss_parts() == ["ctc", "nrtr"]
        assert metrics.loss_series("nrtr").values[0] == 1.0
        assert (metrics.eval_series("acc").steps, metrics.eval_series("acc").values) == ([15], [0.5])
        assert not metrics.eval_series("never")


def test_a_last_line_cut_short_is_left_out(tmp_path):
    file = write(tmp_path / "m.jsonl", train_line(10), tail='{"kind": "tra')
    assert read_metrics(file).train_series("loss").steps == [10]


@pytest.mark.parametrize("line", ["{}\n", "nonsense\n", '{"kind": "other", "step": 1}\n', "[]\n"])
def test_another_file_is_refused_with_its_line(tmp_path, line):
    file = tmp_path / "m.jsonl"
    file.write_text(line + json.dumps(train_line(10)) + "\n")
    with pytest.raises(DataError, match=r"m\.jsonl:1"):
        read_metrics(file)


def test_lines_written_again_after_a_resume_stand_in_for_the_first(tmp_path):
    file = write(
        tmp_path / "m.jsonl",
        train_line(10),
        train_line(20, 9.0),
        eval_line(20, 0.1),
        train_line(20, 2.0),
        eval_line(20, 0.3),
    )
    metrics = read_metrics(file)
    assert (metrics.train_series("loss").steps, metrics.train_series("loss").values) == ([10, 20], [1.0, 2.0])
    assert metrics.eval_series("acc").values == [0.3]


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_metrics(tmp_path)


@pytest.mark.parametrize("runs", [1, 3, 8])
def test_curves_of_several_runs(tmp_path, runs):
    files = {}
    for number in range(runs):
        losses = [{"loss_ctc": 5.0 / step, "loss_nrtr": 1.0} for step in range(1, 61)]
        lines = [
            train_line(i * 10, sum(parts.values()), losses=parts) for i, parts in enumerate(losses, start=1)
        ]
        lines[5]["loss"] = None
        files[f"run {number}"] = write(
            tmp_path / f"{number}" / "metrics.jsonl", *lines, eval_line(300, 0.5), eval_line(600, 0.9)
        )
    out = draw_curves(files, tmp_path / "pictures" / "curves.png", title="a test")
    picture = cv2.imread(str(out))
    assert out == tmp_path / "pictures" / "curves.png"
    assert picture.shape[0] > 500 and picture.shape[1] > 800
    # the first run is blue (#0072B2): its curves and its legend are there
    assert ((picture == (0xB2, 0x72, 0x00)).all(axis=2)).sum() > 500


def test_a_run_that_has_only_been_evaluated(tmp_path):
    file = write(tmp_path / "m.jsonl", eval_line(0, 0.2))
    assert cv2.imread(str(draw_curves({"x": file}, tmp_path / "c.png"))) is not None


def test_nothing_to_draw(tmp_path):
    file = write(tmp_path / "m.jsonl")
    for runs in ({}, {"x": file}):
        with pytest.raises(DataError, match="nothing to draw"):
            draw_curves(runs, tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()
