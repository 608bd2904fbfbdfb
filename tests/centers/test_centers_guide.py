"""The commands of docs/centers.md, as they stand there, on a small student that learns digits and letters."""

import json
import re
import shlex
from pathlib import Path

import cv2
import numpy as np
import pytest
from tiny_runs import tiny_config

from ppocr_ext.characters.center_table import read_centers
from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.io.resources import config_path
from ppocr_ext.loop.session import train

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHARACTERS = "0O17"  # 0 and O are look-alikes
IMAGES = {"train": 128, "val": 32}


def documented(page: Path) -> list[list[str]]:
    """Arguments of the commands in the page's first shell block."""
    found = re.search(r"^```bash\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return [shlex.split(line) for line in found[1].splitlines()]


def draw_lines(folder: Path) -> None:
    """``train_list.txt``, ``val_list.txt`` and ``dict.txt``, with clean images of 2 or 3 characters."""
    rng = np.random.default_rng(0)
    for split, count in IMAGES.items():
        (folder / split).mkdir(parents=True)
        rows = []
        for number in range(count):
            text = "".join(rng.choice(list(CHARACTERS), size=int(rng.integers(2, 4))))
            image = np.full((32, 128, 3), 255, np.uint8)
            place = (int(rng.integers(2, 30)), int(rng.integers(22, 28)))
            cv2.putText(image, text, place, cv2.FONT_HERSHEY_DUPLEX, 0.9, (0, 0, 0), 2)
            name = f"{split}/{number:03d}.png"
            cv2.imwrite(str(folder / name), image)
            rows.append(f"{name}\t{text}\n")
        (folder / f"{split}_list.txt").write_text("".join(rows))
    (folder / "dict.txt").write_text("\n".join(CHARACTERS) + "\n")


@pytest.mark.e2e
def test_the_commands_of_the_guide(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw_lines(tmp_path / "data")
    student = load([config_path("quickstart/student.yml")]).thaw()["Architecture"]
    config = tiny_config(
        Path("data"),
        Path("output"),
        "student",
        **{
            "Architecture": student,
            "Global.epoch_num": 20,
            "Global.eval_batch_step": [0, 16],
            "Global.report": False,
            "Optimizer.lr.learning_rate": 0.005,
            "Train.loader.batch_size_per_card": 16,
        },
    )
    train(config)
    Path("config.yml").write_text(config.with_values({"Global.epoch_num": 2}).to_yaml())
    for words in documented(DOCS / "centers.md"):
        assert words[0] == "ppocr-ext"
        assert main(words[1:]) == 0, (words, capsys.readouterr())

    table = read_centers("centers.npz")
    assert set(table.characters) == {"blank", *CHARACTERS}
    losses = [json.loads(line) for line in Path("output/center_loss/metrics.jsonl").read_text().splitlines()]
    assert all("CenterLoss" in line["losses"] for line in losses if line["kind"] == "train")
    before, after = read_predictions("before.tsv"), read_predictions("after.tsv")
    assert [line.label for line in before] == [line.label for line in after]
    assert len(before) == IMAGES["val"]
    assert sum(line.correct for line in before) > 0
    said = json.loads(Path("confusions/confusions.json").read_text())
    lost, won = said["lines"]["only_before_correct"], said["lines"]["only_after_correct"]
    assert won - lost == sum(line.correct for line in after) - sum(line.correct for line in before)
    assert said["after"]["look_alike_error"]["of"] == said["before"]["look_alike_error"]["of"] > 0
    wrong = not all(line.correct for line in (*before, *after))  # the page shows lines that are, or were
    assert ("<img" in Path("confusions/confusions.html").read_text()) is wrong
