"""The ViT with an NRTR decoder learns to read a handful of images, in the loop that trains everything else."""

import json

import pytest
from tiny_runs import tiny_vit

from ppocr_ext import Recognizer
from ppocr_ext.config import load
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run

pytestmark = pytest.mark.e2e


@pytest.fixture
def handful(captchas, tmp_path):
    """Eight images and their label file."""
    lines = (captchas / "train_list.txt").read_text(encoding="utf-8").splitlines()[:8]
    file = tmp_path / "handful.txt"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file, [line.split("\t") for line in lines]


def test_it_learns_to_read_a_handful_of_images(captchas, tmp_path, handful):
    file, labels = handful
    settings = {
        "Global.epoch_num": 150,
        "Global.eval_batch_step": [0, 150],
        "Global.print_batch_step": 10,
        "Optimizer.lr.learning_rate": 0.003,
        "Optimizer.lr.warmup_epoch": 5,
        "Train.dataset.label_file_list": [str(file)],
        "Eval.dataset.label_file_list": [str(file)],
    }
    assert train(tiny_vit(captchas, tmp_path, **settings)).status == "finished"
    run = tmp_path / "run"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [step["loss"] for step in steps if "loss" in step]
    assert losses[0] > 1.5 and losses[-1] < losses[0] / 10  # chance is ln(14) for each character
    config = load([run / "config.yml"], [f"Global.checkpoints={run / 'latest'}"])
    assert evaluate(Run.build(config, "eval")).metrics["acc"] == pytest.approx(1.0, abs=1e-3)
    readings = Recognizer(run).read([captchas / image for image, _ in labels])
    assert [each.text for each in readings] == [label for _, label in labels]
    assert min(character.confidence for each in readings for character in each.characters) > 0.5
