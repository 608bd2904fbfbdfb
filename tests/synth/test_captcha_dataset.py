"""CaptchaDataSet: the same images for any number of workers, others each epoch, PaddleOCR's transforms."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest

from ppocr_ext.data import transform_factory
from ppocr_ext.errors import ConfigError, DataError, HostError
from ppocr_ext.registry import DATASETS
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.captcha_dataset import CaptchaDataSet


def to_batch(data):
    return data["image"].astype("float32").mean(), data["label"]


def image_and_label(data):
    return data["image"], int(data["label"])


def refuse(data):
    return None


class Concatenate:
    """As PaddleOCR's RecConAug: asks for further samples."""

    ext_data_num = 2

    def __call__(self, data):
        return [data["label"], *(ext["label"] for ext in data["ext_data"])]


OPERATORS = {
    "Batch": lambda options: to_batch,
    "ImageAndLabel": lambda options: image_and_label,
    "Refuse": lambda options: refuse,
    "Concatenate": lambda options: Concatenate(),
}


@pytest.fixture(autouse=True)
def host_transforms():
    def factory(operators, global_config):
        for operator in operators:
            next(iter(operator.values())).update(global_config)  # PaddleOCR writes into its config as well
        return [OPERATORS[next(iter(operator))](operator) for operator in operators]

    known = transform_factory._factory
    transform_factory.set_transform_factory(factory)
    yield
    transform_factory.set_transform_factory(known)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "dict.txt").write_text("".join(f"{i}\n" for i in range(10)))

    def make(mode="Train", steps=("ImageAndLabel",), decode={"img_mode": "BGR"}, **dataset):  # noqa: B006
        head = [] if decode is None else [{"DecodeImage": dict(decode)}]
        section = {
            "name": "CaptchaDataSet",
            "size": 12,
            "transforms": [*head, *({step: {}} for step in steps)],
            **dataset,
        }
        return {
            "Global": {"character_dict_path": str(tmp_path / "dict.txt"), "max_text_length": 8},
            mode: {"dataset": section, "loader": {}},
        }

    return make


def test_registered_under_its_name():
    assert DATASETS.get("CaptchaDataSet") is CaptchaDataSet


def test_samples_are_those_of_the_source_and_the_config_stays_as_it_was(config):
    given = config(seed=4)
    before = copy.deepcopy(given)
    dataset = CaptchaDataSet(given, "Train", None, seed=9)
    assert given == before
    assert len(dataset) == 12 and dataset.need_reset is False
    dataset.set_epoch(3)
    image, label = dataset[5]
    text, expected = CaptchaSource(CaptchaOptions(), 4).image("train/3", 5)
    assert label == int(text) and np.array_equal(image, expected)


def test_seed_of_the_run_where_the_dataset_has_none(config):
    images = [CaptchaDataSet(config(), "Train", None, seed)[0][0] for seed in (9, 9, 8, None)]
    assert np.array_equal(images[0], images[1])
    assert not np.array_equal(images[0], images[2])


def test_epochs_differ_in_training_only(config):
    train = CaptchaDataSet(config(), "Train", None, 1)
    held_out = CaptchaDataSet(config("Eval"), "Eval", None, 1)
    first = train[0][0], held_out[0][0]
    assert not np.array_equal(first[0], first[1])
    train.set_epoch(1), held_out.set_epoch(1)
    assert not np.array_equal(train[0][0], first[0])
    assert np.array_equal(held_out[0][0], first[1])


@pytest.mark.parametrize(
    ("decode", "expected"),
    [
        ({"img_mode": "BGR", "channel_first": False}, lambda bgr: bgr),
        ({"img_mode": "RGB"}, lambda bgr: bgr[:, :, ::-1]),
        ({}, lambda bgr: bgr[:, :, ::-1]),
        ({"img_mode": "BGR", "channel_first": True}, lambda bgr: bgr.transpose(2, 0, 1)),
        (None, lambda bgr: bgr),
    ],
)
def test_images_come_as_decode_image_would_give_them(config, decode, expected):
    image, _ = CaptchaDataSet(config(decode=decode), "Train", None, 1)[2]
    assert np.array_equal(image, expected(CaptchaSource(CaptchaOptions(), 1).image("train/0", 2)[1]))


def test_workers_make_the_same_images(config):
    def labels(workers, epoch):
        dataset = CaptchaDataSet(config(), "Train", None, 1)
        dataset.set_epoch(epoch)
        loader = paddle.io.DataLoader(
            dataset, batch_size=4, shuffle=False, num_workers=workers, return_list=True
        )
        return [
            (int(label), float(image.astype("float32").mean()))
            for batch in loader
            for image, label in zip(*batch, strict=True)
        ]

    alone = labels(0, 1)
    assert len(alone) == 12
    assert labels(2, 1) == alone
    assert labels(2, 2) != alone


def test_operators_that_join_samples_get_further_ones(config):
    label, *others = CaptchaDataSet(config(steps=("Concatenate",)), "Train", None, 1)[0]
    assert len({label, *others}) == 3
    assert CaptchaDataSet(config(steps=("Concatenate",)), "Train", None, 1)[0] == [label, *others]


def test_a_sample_that_a_transform_refuses_is_an_error(config):
    with pytest.raises(DataError, match="refuses the CAPTCHA"):
        CaptchaDataSet(config(steps=("Refuse",)), "Train", None, 1)[0]


@pytest.mark.parametrize(
    ("keys", "error", "said"),
    [
        ({"size": 0}, ConfigError, "Train.dataset.size"),
        ({"size": None}, ConfigError, "Train.dataset.size"),
        ({"length": 4}, ConfigError, "Train.dataset.length"),
        ({"width": "160"}, ConfigError, "Train.dataset.width"),
        ({"characters": 123}, ConfigError, "quotes"),
        ({"charactres": "012"}, ConfigError, "Did you mean 'characters'"),
        ({"characters": "0ab"}, DataError, "'ab', which are not in"),
        ({"length": [4, 9]}, DataError, "Global.max_text_length is 8"),
    ],
)
def test_keys_that_cannot_work_are_named(config, keys, error, said):
    with pytest.raises(error, match=said):
        CaptchaDataSet(config(**keys), "Train", None, 1)


def test_multi_scale_sampler_is_refused(config):
    given = config()
    given["Train"]["sampler"] = {"name": "MultiScaleSampler", "scales": [[320, 32]]}
    with pytest.raises(ConfigError, match="one size"):
        CaptchaDataSet(given, "Train", None, 1)


def test_without_a_host_there_are_no_transforms(config):
    transform_factory.set_transform_factory(None)
    with pytest.raises(HostError, match="open the host"):
        CaptchaDataSet(config(), "Train", None, 1)
