"""Hebrew lines from a folder to an export: labels in either order, and readings that become labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont
from sanity_runs import learner, short_texts
from saved_runs import save_run
from small_fonts import make_font

from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.data.label_file import read_label_file, write_label_file
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.first_run import writing
from ppocr_ext.text_direction import RIGHT_TO_LEFT, RIGHT_TO_LEFT_VISUAL, turned

__all__ = ["short_texts"]
pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_released_models")]
WORDS = ["שלום", "מלך", "לחם", "גשם"]  # final letters show in which order they are stored
ORDERS = {RIGHT_TO_LEFT: str, RIGHT_TO_LEFT_VISUAL: turned}


def draw(folder: Path, font: Path, words: list[str], order: Any, green: int = 255) -> None:
    """Write images of words, which read from right to left, and a list of their labels in an order."""
    folder.mkdir()
    letters = ImageFont.truetype(str(font), 30, layout_engine=ImageFont.Layout.BASIC)
    for number, word in enumerate(words):
        image = Image.new("RGB", (18 * len(word) + 8, 32), (255 - number % 7, green, 255))
        ImageDraw.Draw(image).text((4, 0), word[::-1], fill="black", font=letters)
        image.save(folder / f"{number}.png")
    write_label_file(folder / "labels.txt", [(f"{at}.png", order(word)) for at, word in enumerate(words)])


@pytest.mark.parametrize("direction", ORDERS)
def test_hebrew_from_a_folder_to_an_export(
    short_texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(writing, "GENERAL_LINES", 6)
    order = ORDERS[direction]
    font = make_font(tmp_path / "bars.ttf", "".join(sorted({*"".join(WORDS)})))
    draw(Path("data"), font, WORDS * 10, order)
    draw(Path("other"), font, WORDS, order, green=254)  # else some would be images of val
    save_run(learner(short_texts), Path("start"))
    assert main(["init", "data", "--base", "start"]) == 0
    assert load("my/config.yml").settings.text_direction == direction
    steps = ["Global.epoch_num=20", "Global.eval_batch_step=[0,140]", "Optimizer.lr.learning_rate=0.004"]
    # those weights are random
    steps += ["Global.pretrained_model=null", "Eval.general=null", "Train.mix=null"]
    assert main(["train", "-c", "my/config.yml", "-o", *steps]) == 0

    read = ["predict", "my/run", "my/val.txt", "--data-dir", "data"]
    assert main([*read, "--output", "read.tsv"]) == 0
    assert main(["eval", "my/run", "--save-predictions", "eval.tsv"]) == 0
    found, evaluated = (read_predictions(name) for name in ("read.tsv", "eval.tsv"))
    assert [(each.label, each.text) for each in found] == [(each.label, each.text) for each in evaluated]
    assert all(each.correct and each.text in WORDS for each in found)  # in the order of a reader

    assert main(["export", "my/run", "--output", "model", "--format", "paddle"]) == 0
    assert json.loads(Path("model/model.json").read_text("utf-8"))["text_direction"] == direction
    given = ["--data", "my/val.txt", "--data-dir", "data", "--no-clients"]
    assert main(["verify", "model", "--run", "my/run", *given]) == 0

    names = [f"other/{at}.png" for at in range(len(WORDS))]
    assert main(["predict", "my/run", *names, "--format", "labels", "--output", "more.txt"]) == 0
    assert main(["init", "data", "--base", "start", "--more", "more.txt", "--out", "next"]) == 0
    assert sorted(line.label for line in read_label_file(Path("next/more.txt"))) == sorted(map(order, WORDS))
