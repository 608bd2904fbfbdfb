"""The oldest files that are still read: a stopped run, its checkpoints, metrics, predictions, centers and cache."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import other_weights
from ppocr_ext.cli.main import main
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.report.run_folder import read_metrics

FIXTURE = Path(__file__).parent / "fixtures" / "oldest"
DICTIONARY = "Global.character_dict_path=data/dict.txt"  # config.yml has an absolute path
LATEST = "Global.checkpoints=stopped/latest"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files as the current folder."""
    shutil.copytree(FIXTURE, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_the_stopped_run_goes_on_as_the_version_that_began_it(old: Path) -> None:
    before, then = lines(old / "stopped/metrics.jsonl"), lines(old / "finished.jsonl")
    assert main(["train", "-c", "stopped/config.yml", "-o", LATEST, DICTIONARY]) == 0
    record = json.loads((old / "stopped/run.json").read_text(encoding="utf-8"))
    assert (record["status"], record["global_step"]) == ("finished", 18)
    now = lines(old / "stopped/metrics.jsonl")
    assert now[: len(before)] == before
    assert [(each["kind"], each["step"]) for each in now] == [(each["kind"], each["step"]) for each in then]
    rows = [
        [[each["lr"], *each["losses"].values()] for each in found if each["kind"] == "train"]
        for found in (then, now)
    ]
    np.testing.assert_allclose(*rows, rtol=1e-3)
    assert {each["teacher_cached"] for each in now if "teacher_cached" in each} == {1.0}


def test_its_checkpoint_reads_what_it_read(old: Path) -> None:
    command = ["eval", "-c", "stopped/config.yml", "-o", LATEST, DICTIONARY, "--save-predictions", "now.tsv"]
    assert main(command) == 0
    then, now = (read_predictions(old / name) for name in ("predictions.tsv", "now.tsv"))
    assert [replace(each, confidence=0.0) for each in now] == [replace(each, confidence=0.0) for each in then]
    confidences = [[each.confidence for each in read] for read in (now, then)]
    np.testing.assert_allclose(*confidences, atol=1e-3)


def test_its_best_checkpoint_has_the_average_and_the_raw_weights(old: Path) -> None:
    checkpoint = Checkpoint("stopped/best_accuracy")
    state, average, raw = checkpoint.train_state(), checkpoint.weights(), other_weights(checkpoint)
    assert (state.position.global_step, state.accumulate, state.views) == (10, 2, {"seed": 5, "count": 2})
    assert raw.keys() == average.keys() and state.hooks is not None and state.hooks["Ema"]["updates"] == 5
    changed = {name for name in raw if not np.array_equal(raw[name], average[name])}
    assert "Student.head.ctc_head.fc.weight" in changed and {name.split(".")[0] for name in changed} == {
        "Student"
    }


def test_its_folder_has_metrics_and_a_report(old: Path) -> None:
    metrics = read_metrics("stopped")
    assert metrics.loss_parts() == ["ctc", "sar", "ctc_frame_kd"]
    assert [step for step, _ in metrics.loss_series("sar")] == [*range(1, 11)]
    assert [step for step, _ in metrics.series("eval", "acc")] == [2, 4, 6, 8, 10]
    assert main(["report", "stopped", "--out", "page.html"]) == 0
    page = (old / "page.html").read_text(encoding="utf-8")
    assert "Ctrl-C" in page and "stopped" in page


def test_its_centers_are_those_of_today(old: Path) -> None:
    command = ["export-center", "-c", "stopped/config.yml", "-o", LATEST, DICTIONARY, "--frames", "aligned"]
    assert main([*command, "--output", "now.npz"]) == 0
    then, now = read_centers(Path("centers.npz")), read_centers(Path("now.npz"))
    assert then.characters == now.characters and then.counts.tolist() == now.counts.tolist()
    np.testing.assert_allclose(now.centers, then.centers, atol=1e-5)
    np.testing.assert_allclose(now.variance, then.variance, atol=1e-5)
