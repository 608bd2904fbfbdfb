"""The host's own datasets with reports: a wrong transform is not reported as bad samples."""

from __future__ import annotations

import logging

import pytest
from error_codes import raises_code

from ppocr_ext.data.load_failures import LoadFailures
from ppocr_ext.data.preflight_report import UnusableLimit
from ppocr_ext.errors import DataError
from ppocr_ext.host import open_host
from ppocr_ext.run.loader_setup import label_file_dataset_class

DECODE = {"DecodeImage": {"img_mode": "BGR", "channel_first": False}}
CHANNEL_FIRST = {"DecodeImage": {"img_mode": "BGR", "channel_first": True}}
JOIN = {"RecConAug": {"prob": 1.0, "image_shape": [32, 320, 3], "max_text_length": 25}}
RESIZE = {"RecResizeImg": {"image_shape": [3, 32, 128]}}
KEEP = {"KeepKeys": {"keep_keys": ["image", "label"]}}


@pytest.fixture
def build(captchas):
    """Return a dataset of 24 samples with the given transforms, and its failures."""

    def build(*transforms, **options):
        host = open_host()
        files = [captchas / "train_list.txt"]
        failures = LoadFailures("Train", 24, 0, UnusableLimit())
        section = {
            "name": "SimpleDataSet",
            "data_dir": str(captchas),
            "label_file_list": [str(file) for file in files],
            "transforms": list(transforms),
            **options,
        }
        config = {"Global": {}, "Train": {"dataset": section, "loader": {"shuffle": True}}}
        kind = label_file_dataset_class(host.component("dataset", "SimpleDataSet"), failures, files, "\t")
        return kind(config, "Train", logging.getLogger("ppocr"), 1), failures

    return build


def test_right_transforms_load_every_sample(build):
    dataset, failures = build(DECODE, JOIN, RESIZE, KEEP, ext_op_transform_idx=1)
    assert [len(dataset[index]) for index in range(24)] == [2] * 24
    assert failures.count == 0


@pytest.mark.parametrize(
    ("transforms", "name"),
    [((DECODE, JOIN, RESIZE, KEEP), "RecConAug"), ((CHANNEL_FIRST, RESIZE, KEEP), "RecResizeImg")],
    ids=["RecConAug without ext_op_transform_idx", "channel_first"],
)
def test_a_wrong_transform_is_named(build, transforms, name):
    dataset, _ = build(*transforms)
    with raises_code(DataError, "too_many_unusable", f": {name}: "):
        dataset[0]
