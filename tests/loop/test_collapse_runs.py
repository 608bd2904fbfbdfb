"""Runs with a planted collapse: it is found before the second evaluation, and warned of or stopped."""

import json

import numpy as np
import paddle
import pytest
from faults import Plant, blanks_alone, end_alone, one_text

from ppocr_ext.cli.main import main
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.hooks.report_hook import NrtrReader
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run

pytestmark = pytest.mark.e2e
LATE = 34  # the step before which a collapse is planted, right after the first evaluation

FOUR_IMAGES = {
    "Train.loader.batch_size_per_card": 4,
    "Global.eval_batch_step": [0, LATE - 1],
}  # 6 steps an epoch


def found(run):
    text = (run / "train.log").read_text()
    return [line.split("(")[1].split(")")[0] for line in text.splitlines() if "has collapsed (" in line]


@pytest.mark.parametrize(
    ("planted_before", "code", "ends_after"), [(1, "first_loss", 1), (3, "certain_blanks", 30)]
)
def test_a_collapse_stops_the_run(tiny, tmp_path, planted_before, code, ends_after):
    settings = {"Global.on_collapse": "stop", "Global.epoch_num": 6, **FOUR_IMAGES}
    plant = Plant(blanks_alone, *range(planted_before, 100))
    outcome = train(tiny("student", **settings), hooks=[plant])
    assert (outcome.status, outcome.position.global_step) == ("collapsed", ends_after)
    assert found(tmp_path / "run")[0] == code and code in outcome.reason
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "collapsed"


class LearntOnce(Hook):
    """The first evaluation has an accuracy that a tiny network does not reach; the others are as they are."""

    def wrap_metric(self, metric):
        real, values = metric.get_metric, iter([{"acc": 0.95}])
        metric.get_metric = lambda: {**real(), **next(values, {})}
        return metric


def test_a_collapse_after_learning_is_warned_of(tiny, tmp_path):
    settings = {"Global.epoch_num": 11, "Global.report": True, **FOUR_IMAGES}
    plants = [Plant(fault, *range(LATE, 100)) for fault in (one_text, end_alone)]
    outcome = train(tiny("student", **settings), hooks=[LearntOnce(), *plants])
    run = tmp_path / "run"
    assert outcome.status == "finished"
    assert sorted(found(run)) == ["accuracy_fell", "nrtr_empty", "nrtr_ends", "same_text"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    second = [line["step"] for line in lines if line["kind"] == "eval"][1]
    log = (run / "train.log").read_text()
    assert f"step {LATE - LATE % 10 + 30}: the training has collapsed" in log and second == 2 * (LATE - 1)
    measured = [line for line in lines if "nrtr_end_share" in line]
    assert [line["step"] for line in measured] == [1, 10, 20, 30, 40, 50, 60]
    assert [line["nrtr_end_share"] for line in measured[-3:]] == [1.0] * 3
    assert [line["distinct_texts"] for line in measured[-3:]] == [1.0] * 3
    samples = json.loads((run / "samples.json").read_text())["samples"]
    assert {sample["nrtr"] for sample in samples} == {""}
    assert "by NRTR" in (run / "report.html").read_text()


def test_a_clean_run_raises_nothing_and_samples_have_the_reading_of_nrtr(tiny, tmp_path, capsys):
    run = tmp_path / "run"
    train(tiny("student", **{"Global.report": True}))
    assert found(run) == []
    samples = json.loads((run / "samples.json").read_text())["samples"]
    command = ["eval", "-c", str(run / "config.yml"), "-o", f"Global.checkpoints={run / 'latest'}"]
    assert main([*command, "--head", "gtc", "--save-predictions", str(tmp_path / "gtc.tsv")]) == 0
    table = [line.split("\t") for line in (tmp_path / "gtc.tsv").read_text().splitlines()[1:]]
    read = {label: text for _, label, text, _ in table}
    assert len(samples) == len(read) == 10
    assert {sample["label"]: sample["nrtr"] for sample in samples} == read
    assert np.any([sample["nrtr"] != sample["text"] for sample in samples])


def test_images_of_several_sizes_are_read_like_those_of_one(tiny):
    run = Run.build(tiny("student", **{"Global.dry_step": False}), "train")
    reader, images = NrtrReader(run), np.random.default_rng(0).random((3, 3, 32, 128), np.float32)
    together = reader.read(images)
    assert reader.read([images[0], images[1][:, :, :96]])[0] == together[0]
    assert reader.read([images[0], images[1][:, :16], images[2]])[::2] == together[::2]
    assert run.model.training and paddle.is_grad_enabled()
