"""An evaluation reads images as wide as they are."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from saved_runs import save_run
from tiny_runs import captchas, metrics, tiny

from ppocr_ext.data.label_file import read_label_file
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.loop.session import train
from ppocr_ext.recognition.recognizer import Recognizer
from ppocr_ext.run.run import Run

__all__ = ["captchas", "tiny"]
TIMES = (1, 1, 3, 2, 1, 2, 2, 1)  # as often as an image stands beside itself


@pytest.fixture
def widened(captchas, tiny, tmp_path):
    """The config of a student whose Eval has lines of several widths."""
    rows = []
    for times, line in zip(TIMES, read_label_file(captchas / "train_list.txt"), strict=False):
        image = cv2.imread(str(captchas / line.images[0]))
        cv2.imwrite(str(tmp_path / (name := f"{len(rows)}.png")), np.tile(image, (1, times, 1)))
        rows.append(f"{name}\t{line.label[:1] * times}\n")
    (tmp_path / "wide.txt").write_text("".join(rows))
    values = {"label_file_list": [str(tmp_path / "wide.txt")], "data_dir": str(tmp_path)}
    config = tiny("student", **{f"Eval.dataset.{key}": value for key, value in values.items()})
    resizing = {"image_shape": [3, 32, 96], "eval_mode": True}
    return config.with_values({"Eval.dataset.transforms.RecResizeImg": resizing})


@pytest.mark.parametrize("workers", [0, 2])
def test_lines_of_any_width_are_read_as_predict_reads_them(widened, tmp_path, workers):
    config = widened.with_values({"Eval.loader.num_workers": workers, "Eval.loader.batch_size_per_card": 4})
    save_run(config, tmp_path / "run")
    result = evaluate(
        Run.build(config.with_values({"Global.checkpoints": str(tmp_path / "run/best_accuracy")}), "eval")
    )
    images = [str(Path(tmp_path, f"{number}.png")) for number in range(len(TIMES))]
    texts = [each.text for each in Recognizer(str(tmp_path / "run")).read(images)]
    assert [(each.image, each.text) for each in result.predictions] == [
        (Path(image).name, text) for image, text in zip(images, texts, strict=True)
    ]
    assert len({*texts}) > 1


def test_a_training_evaluates_lines_of_any_width(widened, tmp_path):
    train(widened)
    assert all("acc" in line for line in metrics(tmp_path / "run", "eval"))
