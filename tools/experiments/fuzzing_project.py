"""A small project with a file of every kind that the commands read: made once, then copied and damaged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle
import yaml
from PIL import Image

from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.cli.make_lmdb import make_lmdb
from ppocr_ext.config import load
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.data.sample_seeds import Views
from ppocr_ext.evaluation.predictions import Prediction, write_predictions
from ppocr_ext.io.resources import config_path
from ppocr_ext.loop.events import Hook, StepDone
from ppocr_ext.loop.session import train
from ppocr_ext.run.run import Run, Training
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder
from ppocr_ext.teacher_cache.store import BranchForm, CacheFacts

_GOOD_STEPS = 3
TINY: dict[str, Any] = yaml.safe_load("""
Backbone:
  name: SVTRv2
  dims: [8, 16, 16]
  depths: [1, 2, 1]
  num_heads: [1, 1, 1]
  mixer: [[Conv], [Conv, Global], [Global]]
  sub_k: [[4, 1], [2, 1], [-1, -1]]
  use_pool: true
Head:
  name: MultiHead
  head_list:
  - CTCHead:
      Neck: {name: svtr, dims: 16, depth: 1, hidden_dims: 16, kernel_size: [1, 3]}
      Head: {fc_decay: 0.00001}
  - NRTRHead: {nrtr_dim: 32, num_decoder_layers: 1, max_text_length: 8}
""")
_SMALL = {
    "Global.use_gpu": False,
    "Global.dry_step": False,
    "Global.epoch_num": 1,
    "Global.print_batch_step": 1,
    "Global.eval_batch_step": [0, 2],
    "Global.save_model_dir": "run",
    "Global.character_dict_path": "data/dict.txt",
    "Optimizer.lr.warmup_epoch": 0,
    **{f"Architecture.{part}": value for part, value in TINY.items()},
    "Train.loader.batch_size_per_card": 3,
    "Train.loader.num_workers": 0,
    "Eval.loader.num_workers": 0,
}


class _Spoil(Hook):
    """Make the weights NaN after some steps: the run then leaves an incident."""

    def on_start(self, run: Run, training: Training) -> None:
        self._run = run

    def on_step(self, step: StepDone) -> None:
        weight = self._run.network.head.ctc_head.fc.weight
        if step.position.global_step == _GOOD_STEPS:
            weight.set_value(paddle.full(weight.shape, float("nan")))


def make_project(folder: Path) -> None:
    """Make the project in ``folder``, which becomes the current folder."""
    folder.mkdir()
    os.chdir(folder)
    make_folder("data", DatasetFolder(CaptchaSource(CaptchaOptions(), seed=3), train=12, val=4), processes=1)
    _train()
    _tables()
    _images()
    report = PreflightReport(Path("data"), SampleRules(None, None))
    make_lmdb("lmdb", [Path("data/val_list.txt")], report)
    ones = np.ones(4)
    table = CenterTable(
        np.arange(4), (*"xabc",), np.ones((4, 6), "f4"), ones.astype("i8"), ones, {"model": "x"}
    )
    table.save(Path("centers.npz"))
    table.save_pickle(Path("centers.pkl"))
    Path("cache").mkdir()
    views, branches = Views(seed=1, count=2), {"ctc": BranchForm(classes=11, kept=4)}
    facts = CacheFacts("Teacher", "a", "b", "c", views, branches, shards=1, batches=2, dtype="float32")
    facts.write(Path("cache"))
    captchas = CaptchaSource(CaptchaOptions(painter="library"), seed=1)
    make_folder("drawn", DatasetFolder(captchas, train=0, val=1), processes=1)


def _train() -> None:
    dataset = {"name": "SimpleDataSet", "data_dir": "data", "label_file_list": ["data/train_list.txt"]}
    config = load([config_path("quickstart/student.yml")])
    transforms = config.thaw()["Eval"]["dataset"]["transforms"]
    values = {"Train.dataset": {**dataset, "transforms": transforms}, "Eval.dataset.data_dir": "data"}
    values["Eval.dataset.label_file_list"] = ["data/val_list.txt"]
    config = config.with_values({**_SMALL, **values})
    train(config, hooks=[_Spoil()])
    (incident,) = Path("run/incidents").iterdir()
    shutil.move(incident, "incident")
    if not Path("run/best_accuracy.pdparams").is_file():
        raise RuntimeError("the run has no best checkpoint")
    journal = '{".best_accuracy.pdparams.abcdefgh.tmp": "best_accuracy.pdparams"}'
    Path("run/best_accuracy.journal").write_text(journal)
    Path("base.yml").write_text(config.to_yaml(), encoding="utf-8")
    Path("child.yml").write_text("_BASE_: base.yml\n", encoding="utf-8")


def _tables() -> None:
    predictions = [
        Prediction(f"images/{n}.png", "12末", text, 0.5) for n, text in enumerate(["12未", "=1+1", "", "x"])
    ]
    for name in ("predictions.tsv", "before.tsv", "run/predictions.tsv"):
        write_predictions(Path(name), predictions)
    Path("groups.txt").write_text("# look-alikes\n未末\n12\n", encoding="utf-8")


def _images() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 160, 3), np.uint8)
    Path("images").mkdir()
    for ending in ("png", "jpg", "webp", "bmp", "tiff", "jp2"):
        Path(f"images/a.{ending}").write_bytes(bytes(cv2.imencode(f".{ending}", pixels)[1]))
    Image.fromarray(pixels).save("images/a.gif")
    encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1]
    Path("images/a.progressive.jpg").write_bytes(bytes(encoded))
    shutil.copy("images/a.png", "images/good.png")
    Path("images/list.txt").write_text("good.png\t12\na.jpg\t34\na.bmp\t5\n", encoding="utf-8")
    shutil.copy("images/a.jpg", "data/one.jpg")
    with Path("data/train_list.txt").open("a", encoding="utf-8") as stream:
        stream.write("one.jpg\t12\n")
