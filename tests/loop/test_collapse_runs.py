"""Runs with a planted collapse, and runs that learn nothing: what is said, and that healthy ones hear nothing."""

import json
import re
import warnings

import numpy as np
import paddle
import pytest
from faults import Plant, blanks_alone, end_alone, one_text
from sanity_runs import learner, short_texts
from tiny_runs import StopAfter, metrics, tiny_vit

from ppocr_ext.cli.main import main
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.hooks import collapse_watch
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
    lines = metrics(run)
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
    images = np.random.default_rng(0).random((3, 3, 32, 128), np.float32)
    reader = NrtrReader(run, run.training)
    together = reader.read(images)
    assert reader.read([images[0], images[1][:, :, :96]])[0] == together[0]
    assert reader.read([images[0], images[1][:, :16], images[2]])[::2] == together[::2]
    assert run.model.training and paddle.is_grad_enabled()


__all__ = ["short_texts"]

LENGTH = {
    "Train.loader.batch_size_per_card": 4,
    "Global.epoch_num": 2,
    "Global.eval_batch_step": [0, 12],
}  # 12 steps
NOTHING = {"Optimizer.lr.learning_rate": 1e-7}


@pytest.fixture(autouse=True)
def short_runs_count(monkeypatch):
    monkeypatch.setattr(collapse_watch, "SHORTEST", 9)


def notices(run):
    return re.findall(r"step (\d+ of \d+): (\w+): ", (run / "train.log").read_text())


def verdict(run):
    return json.loads((run / "run.json").read_text()).get("verdict")


@pytest.mark.parametrize("kind", ["student", "distill"])
def test_a_run_that_learns_nothing_gets_one_notice_and_a_verdict(tiny, tmp_path, kind):
    assert train(tiny(kind, **LENGTH, **NOTHING, **{"Global.report": True})).status == "finished"
    run = tmp_path / "run"
    assert notices(run) == [("4 of 12", "constant_guess")]
    found = verdict(run)
    assert found["code"] == "constant_guess" and len(found["causes"]) > 2
    assert found["next"].startswith("ppocr-ext sanity -c ") and found["next"] in found["text"]
    assert found["causes"][0] in (run / "report.html").read_text()


def test_a_short_run_gets_no_notice(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(collapse_watch, "SHORTEST", 300)
    train(tiny("student", **LENGTH, **NOTHING))
    assert not notices(tmp_path / "run")
    assert verdict(tmp_path / "run")["code"] == "constant_guess"


def test_a_resumed_run_counts_from_its_first_step(tiny, tmp_path):
    config, run = tiny("student", **LENGTH, **NOTHING), tmp_path / "run"
    assert train(config, hooks=[StopAfter(2)]).status == "stopped"
    assert verdict(run) is None and not notices(run)
    resumed = config.with_values({"Global.checkpoints": str(run / "latest")})
    assert train(resumed, hooks=[StopAfter(6)]).status == "stopped"
    train(resumed)
    assert notices(run) == [("4 of 12", "constant_guess")] and verdict(run)["code"] == "constant_guess"


def run_of_learner(short_texts, folder, evaluated):
    settings = {
        "Global.save_model_dir": str(folder),
        "Global.epoch_num": 40,
        "Global.eval_batch_step": [0, 120],
        "Global.report": False,
        "Optimizer.lr.warmup_epoch": 1,
        "Train.loader.batch_size_per_card": 8,
        "Train.loader.num_workers": 0,
        "Eval.dataset.label_file_list": [str(evaluated)],
    }
    return train(learner(short_texts, **settings))


def test_a_run_that_learns_gets_neither(short_texts, tmp_path):
    outcome = run_of_learner(short_texts, tmp_path / "run", short_texts / "train_list.txt")
    assert outcome.position.global_step == 120 and outcome.best["acc"] > 0
    assert not notices(tmp_path / "run") and verdict(tmp_path / "run") is None


def test_a_run_that_learns_its_samples_by_heart_is_told_so(short_texts, tmp_path):
    lines = (short_texts / "train_list.txt").read_text().splitlines()
    pairs = [line.split("\t") for line in lines]
    others = tmp_path / "others.txt"  # images that have another label here than in the training
    others.write_text("".join(f"{image}\t{label[::-1]}\n" for image, label in pairs))
    run_of_learner(short_texts, tmp_path / "run", others)
    assert verdict(tmp_path / "run")["code"] == "by_heart"


def test_a_decoder_alone_is_watched(captchas, tmp_path):
    train(tiny_vit(captchas, tmp_path, **LENGTH, **NOTHING, **{"Global.print_batch_step": 10}))
    run = tmp_path / "run"
    assert notices(run) == [("4 of 12", "constant_guess")] and verdict(run)["code"] == "constant_guess"
    lines = metrics(run)
    assert any("nrtr_end_share" in line for line in lines)


def test_a_decoder_alone_that_only_ends_is_noticed_without_a_warning_of_numpy(captchas, tmp_path):
    config = tiny_vit(captchas, tmp_path, **LENGTH, **{"Global.print_batch_step": 10})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of the confidence of an empty text
        train(config, hooks=[Plant(end_alone, *range(1, 13))])
    assert notices(tmp_path / "run") == [("4 of 12", "nrtr_ends")]
    assert verdict(tmp_path / "run")["code"] == "nrtr_ends"
