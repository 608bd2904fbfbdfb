"""What the network gets of an image, against PaddleOCR's own transforms."""

import json
from dataclasses import replace

import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.host import open_host
from ppocr_ext.host.complete import TURNING
from ppocr_ext.recognition.images import WidthPolicy

OPTIONS = {"pad": {}, "squash": {"padding": False}, "widen": {"eval_mode": True}}
# height and width: common lines, one pixel, higher than wide, longer than any input, rounding of the ratio
SIZES = [
    (32, 128),
    (48, 320),
    (1, 1),
    (90, 7),
    (7, 900),
    (31, 411),
    (33, 97),
    (48, 319),
    (60, 160),
    (17, 6000),
]


def eval_config(*transforms, **sections):
    return Config(
        {"Eval": {"dataset": {"name": "SimpleDataSet", "transforms": list(transforms)}}, **sections}
    )


def transforms(options=None, decode=None, name="RecResizeImg", shape=(3, 48, 320)):
    return [
        {"DecodeImage": {"img_mode": "BGR", "channel_first": False} if decode is None else decode},
        {"MultiLabelEncode": {"gtc_encode": "NRTRLabelEncode"}},
        {name: {"image_shape": list(shape), **(options or {})}},
        {"KeepKeys": {"keep_keys": ["image", "label_ctc"]}},
    ]


@pytest.mark.parametrize("shape", [(3, 48, 320), (3, 32, 100), (3, 40, 133)])
@pytest.mark.parametrize("kind", OPTIONS)
def test_input_is_the_host_s_in_every_bit(kind, shape):
    rng = np.random.default_rng(3)
    (theirs,) = open_host().create_operators(
        [{"RecResizeImg": {"image_shape": list(shape), **OPTIONS[kind]}}], {}
    )
    policy = WidthPolicy.from_config(eval_config(*transforms(OPTIONS[kind], shape=shape)))
    assert policy == WidthPolicy(kind, shape, max_width=3200 if kind == "widen" else None)
    policy = replace(policy, max_width=None)  # the host has no limit
    sizes = SIZES + [tuple(int(n) for n in rng.integers(8, 700, 2)) for _ in range(60)]
    for size in sizes:
        image = rng.integers(0, 256, (*size, 3), np.uint8)
        expected = theirs({"image": image})["image"]
        ours = policy.prepare(image)
        assert ours.dtype == expected.dtype == np.float32
        assert ours.shape == expected.shape, size
        assert np.array_equal(ours, expected), size
        columns, filled = policy.widths(*size)
        assert ours.shape == (3, shape[1], columns) and not ours[:, :, filled:].any()


def test_channels_are_turned_for_a_network_of_rgb():
    image = np.random.default_rng(0).integers(0, 256, (20, 50, 3), np.uint8)
    decode = {"channel_first": False}  # PaddleOCR's default is RGB
    policy = WidthPolicy.from_config(eval_config(*transforms(decode=decode)))
    assert policy.color == "RGB"
    (theirs,) = open_host().create_operators([{"RecResizeImg": {"image_shape": [3, 48, 320]}}], {})
    assert np.array_equal(policy.prepare(image), theirs({"image": image[:, :, ::-1]})["image"])


def test_a_limit_squeezes_what_is_longer():
    policy = WidthPolicy("widen", (3, 48, 320), max_width=3200)
    assert policy.widths(48, 3200) == (3200, 3200)
    assert policy.widths(10, 4000) == (3200, 3200)
    assert policy.widths(48, 100) == (320, 100)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_wide_image_does_not_ask_for_gigabytes(kind):
    image = np.zeros((1, 30_000, 3), np.uint8)  # 1.4 million columns at the height of the network
    policy = WidthPolicy.from_config(eval_config(*transforms(OPTIONS[kind], shape=(3, 48, 320))))
    for each in (
        policy,
        WidthPolicy.from_json({"kind": kind, "image_shape": [3, 48, 320], "color": "BGR"}, ""),
    ):
        assert each.prepare(image).shape == (3, 48, 3200 if kind == "widen" else 320)


def test_global_keys_go_over_those_of_the_transform():
    config = eval_config(*transforms(), Global={"infer_mode": True})
    assert WidthPolicy.from_config(config).kind == "widen"


@pytest.mark.parametrize(
    "listed",
    [
        [],
        [{"DecodeImage": {"img_mode": "BGR"}}],
        transforms(name="ABINetRecResizeImg"),
        transforms(name="RFLRecResizeImg"),
        transforms(shape=(1, 32, 100)),
        transforms(decode={"img_mode": "BGR", "ignore_orientation": True}),
        [*transforms(), {"RecAug": None}],
        [{"NormalizeImage": {}}, *transforms()],
        transforms()[1:],
    ],
    ids=[
        "none",
        "no-resize",
        "abinet",
        "rfl",
        "grey",
        "orientation",
        "augmented",
        "normalised",
        "not-decoded",
    ],
)
def test_other_preparation_is_refused(listed):
    with raises_code(ConfigError, "unsupported_preprocessing", "Eval.dataset.transforms"):
        WidthPolicy.from_config(eval_config(*listed))


@pytest.mark.parametrize(
    "policy", [WidthPolicy("squash", (3, 32, 128)), WidthPolicy("widen", (3, 48, 320), "RGB", max_width=3200)]
)
def test_a_policy_comes_back_from_json(policy):
    assert WidthPolicy.from_json(json.loads(json.dumps(policy.to_json())), "model.json") == policy


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"kind": "stretch", "image_shape": [3, 32, 100], "color": "BGR"},
        {"kind": "pad", "image_shape": [32, 100], "color": "BGR"},
        {"kind": "pad", "image_shape": [3, 0, 100], "color": "BGR"},
        {"kind": "pad", "image_shape": 3, "color": "BGR"},
        {"kind": "pad", "image_shape": [3, 32, 100], "color": "GRAY"},
        {"kind": "pad", "image_shape": [3, 32, 100], "color": "BGR", "max_width": -1},
    ],
)
def test_a_policy_of_another_form_is_refused(content):
    with raises_code(DataError, "bad_content", "model.json"):
        WidthPolicy.from_json(content, "model.json")


@pytest.mark.parametrize("size", [(60, 40), (40, 60), (59, 40), (300, 20)])
def test_tall_images_are_turned_as_clients_turn_their_crops(size):
    pixels = np.random.default_rng(4).integers(0, 256, (*size, 3), np.uint8)
    config = eval_config(*transforms(), Global={"turn_tall_images": True})
    policy = WidthPolicy.from_config(config)
    turn, resize = open_host().create_operators(
        [{TURNING: None}, {"RecResizeImg": {"image_shape": [3, 48, 320]}}], {"turn_tall_images": True}
    )
    expected = np.rot90(pixels) if size[0] >= 1.5 * size[1] else pixels
    assert np.array_equal(turn({"image": pixels})["image"], expected)
    assert np.array_equal(policy.prepare(pixels), resize(turn({"image": pixels}))["image"])
    assert np.array_equal(policy.prepare(pixels), WidthPolicy("pad", (3, 48, 320)).prepare(expected))
    assert WidthPolicy.from_json(json.loads(json.dumps(policy.to_json())), "") == policy
