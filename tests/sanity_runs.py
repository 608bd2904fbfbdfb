"""Configs of the quickstart with images of two or three digits, which its networks learn by heart in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_runs import shipped

from ppocr_ext.config import Config
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

SIZE = [3, 32, 80]


@pytest.fixture(scope="session")
def short_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images to train on, 10 to judge."""
    folder = tmp_path_factory.mktemp("short_texts")
    options = CaptchaOptions(length=(2, 3), width=80, height=48)
    make_folder(folder, DatasetFolder(CaptchaSource(options, seed=3), train=24, val=10))
    return folder


def learner(data: Path, kind: str = "student", **values: Any) -> Config:
    """Config of one network (``student``) or of a distillation without weights of the teacher (``distill``)."""
    config = shipped(kind)
    transforms = config.thaw()["Train"]["dataset"]["transforms"]
    transforms[2]["RecResizeImg"]["image_shape"] = SIZE
    files = {"name": "SimpleDataSet", "data_dir": str(data), "transforms": transforms}
    changes = {
        "Global.character_dict_path": str(data / "dict.txt"),
        "Train.dataset": {**files, "label_file_list": [str(data / "train_list.txt")]},
        "Eval.dataset": {**files, "label_file_list": [str(data / "val_list.txt")]},
    }
    if kind == "distill":
        changes["Architecture.Models.Teacher.pretrained"] = None
    return config.with_values(changes).with_values(values)
