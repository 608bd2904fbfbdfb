"""Every kind of dataset gives a resumed run, with any number of workers, the samples of an unbroken one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import DRAWING, MULTI_SCALE, tiny_config

from ppocr_ext.cli.main import main
from ppocr_ext.loop.proxies import LoaderProxy
from ppocr_ext.run.run import Run

DATASETS = ["SimpleDataSet", "MultiScaleDataSet", "LMDBDataSet", "CaptchaDataSet"]


def drawing_transforms(transforms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``transforms`` with those that draw behind ``DecodeImage``."""
    return [transforms[0], *DRAWING, *transforms[1:]]


@pytest.fixture(scope="module", params=DATASETS)
def run(request: pytest.FixtureRequest, captchas: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run over each kind of dataset; of those of label files one image is lost after the check."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    images = Path(shutil.copytree(captchas, folder / "images"))
    section = tiny_config(captchas, folder, "student").thaw()["Train"]
    dataset = section["dataset"] | {"name": name, "data_dir": str(images), "ext_op_transform_idx": 1}
    dataset["transforms"] = drawing_transforms(dataset["transforms"])
    if name == "MultiScaleDataSet":
        dataset["transforms"] = [t for t in dataset["transforms"] if "RecResizeImg" not in t]
        section |= {"sampler": MULTI_SCALE}
    if name == "LMDBDataSet":
        lists = ["--label-files", str(captchas / "train_list.txt"), "--data-dir", str(captchas)]
        assert main(["make-lmdb", *lists, "--out", str(folder / "lmdb")]) == 0
        dataset["data_dir"] = str(folder / "lmdb")
    if name == "CaptchaDataSet":
        own = {"size": 24, "characters": "0123456789", "length": [4, 5], "width": 160, "height": 60}
        dataset = {"name": name, "transforms": dataset["transforms"], "ext_op_transform_idx": 1, **own}
    section |= {"dataset": dataset}
    section["loader"]["batch_size_per_card"] = 4
    values = {
        "Train": section,
        "Global.dry_step": False,
        "Global.max_text_length": 12,
        "Architecture.Head.head_list.NRTRHead.max_text_length": 12,
        "Global.max_unusable": 0.2,
        "Global.allow_different_preprocessing": True,
    }
    built = Run.build(tiny_config(captchas, folder, "student", **values), "train")
    next(iter(images.rglob("*.png"))).unlink()
    return built


def samples(run: Run, workers: int, epoch: int, skip: int = 0) -> list[list[np.ndarray]]:
    """Return the batches of an epoch, each a list of arrays."""
    run.train_loader._loader.num_workers = workers

    def nothing() -> None:
        """Do nothing."""

    options = {"seed": run.seed, "rebuild": run.rebuild_train_loader, "skip": skip, "first_epoch": epoch}
    loader = LoaderProxy(run.train_loader, on_boundary=nothing, on_epoch=nothing, **options)
    return [[each.numpy() for each in batch] for batch in loader]


def test_samples_depend_on_their_position_alone(run: Run) -> None:
    samples(run, 0, epoch=1)
    whole = samples(run, 0, epoch=2)
    resumed = samples(run, 2, epoch=2, skip=2)
    assert len(whole) == len(resumed) + 2 > 4
    for ours, theirs in zip(resumed, whole[2:], strict=True):
        assert [(a.shape, a.tobytes()) for a in ours] == [(a.shape, a.tobytes()) for a in theirs]
    again = samples(run, 0, epoch=3)
    assert not any(np.array_equal(a[0], b[0]) for a, b in zip(again, whole, strict=True))
