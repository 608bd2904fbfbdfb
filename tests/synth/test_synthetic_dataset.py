"""CaptchaDataSet: the same images for any number of workers, others each epoch, PaddleOCR's transforms."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.data import preprocessing
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.synthetic_dataset import CaptchaDataSet, TextLineDataSet


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
    "Label": lambda options: lambda data: data["label"],
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

    known = preprocessing._factory
    preprocessing.set_transform_factory(factory)
    yield
    preprocessing.set_transform_factory(known)


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
    with raises_code(DataError, "rejected_sample"):
        CaptchaDataSet(config(steps=("Refuse",)), "Train", None, 1)[0]


@pytest.mark.parametrize(
    ("dataset", "keys", "key", "code"),
    [
        (CaptchaDataSet, {"size": 0}, "size", "bad_value"),
        (CaptchaDataSet, {"seed": "one"}, "seed", "bad_value"),
        (CaptchaDataSet, {"length": 4}, "length", "bad_value"),
        (CaptchaDataSet, {"characters": "0ab"}, "characters", "bad_value"),
        (CaptchaDataSet, {"fonts": ["/no/font.ttf"]}, "fonts", "bad_font"),
        (TextLineDataSet, {"characters": "0ab"}, "characters", "bad_value"),
        (TextLineDataSet, {"length": [2, 9]}, "length", "bad_value"),
        (TextLineDataSet, {"corpus": "news.txt"}, "corpus", "bad_value"),
        (TextLineDataSet, {"corpus": ["/no/news.txt"]}, "corpus", "unreadable_file"),
        (TextLineDataSet, {"fonts": ["/no/font.ttf"]}, "fonts", "missing_file"),
        (TextLineDataSet, {"rich_in": ["01", "much"]}, "rich_in", "bad_value"),
        (TextLineDataSet, {"style": {"height": 2}}, "style.height", "bad_value"),
        (TextLineDataSet, {"style": {"blur": ["a", 2]}}, "style.blur", "bad_value"),
        (TextLineDataSet, {"style": {"photos": "/no"}}, "style.photos", "no_images"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_path(config, dataset, keys, key, code):
    with pytest.raises(ConfigError) as error:
        dataset(config(**{"length": [2, 4], **keys}), "Train", None, 1)
    assert error.value.code == code and str(error.value).startswith(f"Train.dataset.{key}: ")


@pytest.mark.parametrize("keys", [{"charactres": "012"}, {"style": {"blurr": 1}}])
def test_a_misspelt_key_is_refused(config, keys):
    with pytest.raises(ConfigError) as error:
        TextLineDataSet(config(length=[2, 4], **keys), "Train", None, 1)
    assert str(error.value).startswith("Train.dataset") and next(iter(keys)) in str(error.value)


def test_text_lines_are_drawn_of_the_dictionary_in_the_style_asked_for(config):
    train = TextLineDataSet(config(length=[2, 5], style={"height": 32, "width": 100}), "Train", None, 1)
    lines = [train[index] for index in range(12)]
    assert {image.shape for image, _ in lines} == {(32, 100, 3)}
    train.set_epoch(1)
    assert not np.array_equal(train[0][0], lines[0][0])
    train.set_epoch(0)
    again = copy.deepcopy(train)[0]
    assert np.array_equal(again[0], lines[0][0]) and again[1] == lines[0][1]


@pytest.mark.parametrize("use_space", [True, False])
def test_text_lines_of_a_corpus_have_spaces_if_the_space_is_a_class(config, tmp_path, use_space):
    (tmp_path / "corpus.txt").write_text("12 345\nx6789 0\n" * 3)
    given = config(corpus=[str(tmp_path / "corpus.txt")], length=[3, 8], steps=("Label",))
    given["Global"]["use_space_char"] = use_space
    dataset = TextLineDataSet(given, "Train", None, 1)
    labels = {dataset[index] for index in range(12)}
    assert any(" " in label for label in labels) is use_space
    assert not any("x" in label for label in labels)  # not in the dictionary
