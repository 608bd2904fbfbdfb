"""Every kind of dataset shows the same images again in the epochs of a view, with any seed and order of the run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from error_codes import raises_code
from tiny_runs import DRAWING, MULTI_SCALE, tiny_config

from ppocr_ext.cli.main import main
from ppocr_ext.data.sample_seeds import Views
from ppocr_ext.errors import ConfigError
from ppocr_ext.run.context import RunOptions, open_context
from ppocr_ext.run.loader import Loader
from ppocr_ext.run.loader_setup import open_data
from ppocr_ext.run.run import build_network

DATASETS = ["SimpleDataSet", "MultiScaleDataSet", "LMDBDataSet", "CaptchaDataSet"]


def viewed(captchas: Path, folder: Path, name: str, seed: int, views: Views, **values: object) -> Loader:
    """The training loader over a kind of dataset."""
    section = tiny_config(captchas, folder, "student").thaw()["Train"]
    dataset = section["dataset"] | {"name": name, "ext_op_transform_idx": 1}
    dataset["transforms"] = [dataset["transforms"][0], *DRAWING, *dataset["transforms"][1:]]
    if name == "MultiScaleDataSet":
        dataset["transforms"] = [each for each in dataset["transforms"] if "RecResizeImg" not in each]
        section["sampler"] = MULTI_SCALE
    if name == "LMDBDataSet":
        dataset["data_dir"] = str(folder / "lmdb")
        lists = ["--label-files", str(captchas / "train_list.txt"), "--data-dir", str(captchas)]
        assert (folder / "lmdb").exists() or main(["make-lmdb", *lists, "--out", str(folder / "lmdb")]) == 0
    if name == "CaptchaDataSet":
        own = {"size": 24, "characters": "0123456789", "length": [4, 5], "width": 160, "height": 60}
        dataset = {"name": name, "transforms": dataset["transforms"], "ext_op_transform_idx": 1, **own}
    section["loader"]["batch_size_per_card"] = 4
    section["dataset"] = dataset
    given = {
        "Train": section,
        "Global.seed": seed,
        "Global.max_text_length": 12,
        "Architecture.Head.head_list.NRTRHead.max_text_length": 12,
        "Global.allow_different_preprocessing": True,
    }
    config = tiny_config(captchas, folder, "student", **given).with_values(values)
    context = open_context(config, RunOptions("train", evaluates=False))
    return open_data(context, build_network(context.components), views).train_loader


def images(loader: Loader, epoch: int, skip: int = 0) -> list[bytes]:
    """The images of an epoch, in their order."""
    return [image.tobytes() for batch in loader.read(epoch, skip) for image in batch[0].numpy()]


@pytest.mark.parametrize("name", DATASETS)
def test_views_repeat(captchas, tmp_path, name):
    one, other = (viewed(captchas, tmp_path, name, seed, Views(7, 2)) for seed in (1, 2))
    first, second, third = (images(one, epoch) for epoch in (1, 2, 3))
    elsewhere = images(other, 1)
    assert Counter(first) == Counter(third) == Counter(elsewhere)
    assert first != third and first != elsewhere  # in another order
    assert not {*first} & {*second}
    assert first[4:] == images(one, 1, skip=1)  # after a resume
    assert len(first) == 24 and len(one) == 6
    stored = [image.tobytes() for batch in one.read_view(1, one.of_view(1)) for image in batch[0].numpy()]
    assert Counter(stored) == Counter(first)


def test_a_share_drawn_anew_has_no_views(captchas, tmp_path):
    with raises_code(ConfigError, "conflicting_keys"):
        viewed(captchas, tmp_path, "SimpleDataSet", 1, Views(7, 2), **{"Train.dataset.ratio_list": [0.5]})
