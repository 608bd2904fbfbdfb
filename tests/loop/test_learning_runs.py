"""Runs that learn nothing from their images: one notice at a third, a verdict at the end, and none for healthy ones."""

import json
import re
import warnings

import pytest
from faults import Plant, end_alone
from sanity_runs import learner, short_texts
from tiny_runs import StopAfter, tiny_vit

from ppocr_ext.loop.hooks import collapse_watch
from ppocr_ext.loop.session import train

pytestmark = pytest.mark.e2e
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


def test_a_run_that_learns_gets_neither(short_texts, tmp_path):
    settings = {
        "Global.save_model_dir": str(tmp_path / "run"),
        "Global.epoch_num": 40,
        "Global.eval_batch_step": [0, 120],
        "Global.report": False,
        "Optimizer.lr.warmup_epoch": 1,
        "Train.loader.batch_size_per_card": 8,
        "Train.loader.num_workers": 0,
        "Eval.dataset.label_file_list": [str(short_texts / "train_list.txt")],
    }
    outcome = train(learner(short_texts, **settings))
    assert outcome.position.global_step == 120 and outcome.best["acc"] > 0
    assert not notices(tmp_path / "run") and verdict(tmp_path / "run") is None


def test_a_decoder_alone_is_watched(captchas, tmp_path):
    train(tiny_vit(captchas, tmp_path, **LENGTH, **NOTHING, **{"Global.print_batch_step": 10}))
    run = tmp_path / "run"
    assert notices(run) == [("4 of 12", "constant_guess")] and verdict(run)["code"] == "constant_guess"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("nrtr_end_share" in line for line in lines)


def test_a_decoder_alone_that_only_ends_is_noticed_without_a_warning_of_numpy(captchas, tmp_path):
    config = tiny_vit(captchas, tmp_path, **LENGTH, **{"Global.print_batch_step": 10})
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of the confidence of an empty text
        train(config, hooks=[Plant(end_alone, *range(1, 13))])
    assert notices(tmp_path / "run") == [("4 of 12", "nrtr_ends")]
    assert verdict(tmp_path / "run")["code"] == "nrtr_ends"
