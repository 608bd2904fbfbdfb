"""What version 0.1.0 has left behind still loads: a stopped run, its checkpoint, its centers, a stopped pass."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.cli.main import main

FIXTURE = Path(__file__).parent / "fixtures" / "v0_1_0"
DICTIONARY = "Global.character_dict_path=data/dict.txt"  # 0.1.0 recorded an absolute path
LATEST = "Global.checkpoints=stopped/latest"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files as the current folder."""
    shutil.copytree(FIXTURE, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def test_the_stopped_run_goes_on_to_its_end(old: Path) -> None:
    before = [json.loads(line) for line in (old / "stopped/metrics.jsonl").read_text().splitlines()]
    assert main(["train", "-c", "stopped/config.yml", "-o", LATEST, DICTIONARY]) == 0
    record = json.loads((old / "stopped/run.json").read_text())
    assert (record["status"], record["global_step"]) == ("finished", 9)
    after = [json.loads(line) for line in (old / "stopped/metrics.jsonl").read_text().splitlines()]
    assert after[: len(before)] == before and after[-1]["step"] == 9
    assert (old / "stopped/report.html").is_file()
    assert "other random numbers" in (old / "stopped/train.log").read_text()


def test_its_checkpoint_reads_what_it_read(old: Path) -> None:
    command = ["eval", "-c", "stopped/config.yml", "-o", LATEST, DICTIONARY, "--save-predictions", "now.tsv"]
    assert main(command) == 0
    then, now = ((old / name).read_text().splitlines() for name in ("predictions.tsv", "now.tsv"))
    assert then[0] == now[0]
    columns = [[line.split("\t") for line in text[1:]] for text in (then, now)]
    assert [row[:3] for row in columns[0]] == [row[:3] for row in columns[1]]
    confidences = [[float(row[3]) for row in rows] for rows in columns]
    np.testing.assert_allclose(*confidences, atol=1e-3)


def test_the_run_folder_has_a_report(old: Path) -> None:
    assert main(["report", "stopped", "--out", "page.html"]) == 0
    page = (old / "page.html").read_text(encoding="utf-8")
    assert "Ctrl-C" in page and "stopped" in page


def test_centers_are_read_and_trained_with(old: Path) -> None:
    table = read_centers(Path("centers.npz"))
    assert (len(table.class_ids), table.feat_dim, table.meta["model"]) == (11, 16, "Student")
    with (old / "train_center.pkl").open("rb") as stream:
        pickled = pickle.load(stream)
    np.testing.assert_allclose(np.stack([pickled[i] for i in table.class_ids]), table.centers, rtol=1e-6)
    values = ["Global.pretrained_model=stopped/latest", "Global.save_model_dir=centers", "Global.epoch_num=1"]
    for file in ("centers.npz", "train_center.pkl"):
        path = f"Loss.loss_config_list.CenterLoss.center_file_path={file}"
        overlay = "configs/overlays/center_loss.yml"
        command = ["train", "--overwrite", "-c", "stopped/config.yml", overlay]
        assert main([*command, "-o", *values, DICTIONARY, path]) == 0


def test_a_stopped_pass_goes_on_to_the_same_centers(old: Path) -> None:
    shutil.copy("stopped_pass.partial.npz", "new.partial.npz")
    command = ["export-center", "-c", "stopped/config.yml", "-o", LATEST, DICTIONARY, "--frames", "aligned"]
    assert main([*command, "--output", "new.npz", "--resume"]) == 0
    then, now = read_centers(Path("centers.npz")), read_centers(Path("new.npz"))
    assert then.class_ids.tolist() == now.class_ids.tolist()
    assert then.counts.tolist() == now.counts.tolist()
    np.testing.assert_allclose(now.centers, then.centers, atol=1e-5)
