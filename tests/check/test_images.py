"""Images: decoded before they are worked on, of sizes that there are, and of one height in both sections."""

from __future__ import annotations

from typing import Any

import pytest
from official_facts import Check, errors_at, facts

from ppocr_ext.check import check_config
from ppocr_ext.config import Config
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.host import Host
from ppocr_ext.issues import Issue

SHAPE = "Eval.dataset.transforms.RecResizeImg.image_shape"
SCALES = "Train.sampler.scales"
MODE = "Train.dataset.transforms.DecodeImage.img_mode"


def transforms_of(config: Config, mode: str) -> list[Any]:
    found: list[Any] = config.thaw()[mode]["dataset"]["transforms"]
    return found


@pytest.mark.parametrize("shape", [128, "3,48,320", [3, 32], [3, 32, -128], [3, 32.0, 128], [3, True, 128]])
def test_a_wrong_image_shape(shape: Any, one: Config, check: Check) -> None:
    found = check(one.with_values({SHAPE: shape}))
    assert facts(found) == [("error", "bad_value", SHAPE)] and repr(shape) in found[0].message


@pytest.mark.parametrize("scales", [5, [], [320, 48], [[320, -48]], [[320]], [[320, 48, 3]], [["320", 48]]])
def test_wrong_scales(scales: Any, one: Config, check: Check) -> None:
    found = check(one.with_values({SCALES: scales}))
    assert facts(found) == [("error", "bad_value", SCALES)] and repr(scales) in found[0].message


def test_a_scale_that_is_rounded_to_zero(one: Config, check: Check) -> None:
    (issue,) = check(one.with_values({SCALES: [[320, 32], [320, 8]]}))
    assert facts([issue]) == [("error", "bad_value", SCALES)]
    assert "[320, 8]" in issue.message and "[8, 16]" in issue.message


@pytest.mark.parametrize("mode", ["BRG", "bgr", "GRAY"])
def test_a_wrong_img_mode(mode: str, one: Config, check: Check) -> None:
    found = check(one.with_values({MODE: mode}))
    assert facts(found) == [("error", "bad_value", MODE)] and "BGR, RGB" in found[0].message
    assert check(one.with_values({MODE: "RGB", MODE.replace("Train", "Eval"): "RGB"})) == []


def test_drawn_captchas_are_not_decoded(one: Config, check: Check) -> None:
    without = transforms_of(one, "Eval")[1:]
    dataset = {"name": "CaptchaDataSet", "size": 8, "transforms": without}
    assert check(one.with_values({"Eval.dataset": dataset})) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("divided_factor", 8),
        ("max_w", "128"),
        ("max_w", -1),
        *(("max_w", v) for v in (float("inf"), float("nan"))),
    ],
)
def test_wrong_values_of_the_sampler(key: str, value: Any, one: Config, check: Check) -> None:
    path = f"Train.sampler.{key}"
    found = check(one.with_values({path: value, "Train.dataset.ds_width": True}))
    assert {issue.code for issue in errors_at(found, path)} <= {"bad_value", "quoted_value"}
    assert errors_at(found, path) != []


def test_keys_of_several_kinds_are_compared(one: Config, check: Check) -> None:
    listed = [{"NormalizeImage": {1: 2, "mean": [0]}}, *transforms_of(one, "Eval")]
    found = check(one.with_values({"Eval.dataset.transforms": listed}))
    assert "preprocessing_mismatch" in [issue.code for issue in found]


# Eval prepares images as Train does, or the config says that it need not

RESIZE = "Eval.dataset.transforms.RecResizeImg"


def issues(config: Config, host: Host, role: str = "train") -> list[Issue]:
    return check_config(config, host, role)


def single_size(config: Config, resize: dict[str, Any]) -> Config:
    """The config trained at one size, by a RecResizeImg in place of the sampler."""
    plain = config.thaw()
    del plain["Train"]["sampler"]
    dataset = plain["Train"]["dataset"]
    dataset["name"] = "SimpleDataSet"
    dataset.pop("ds_width", None)
    dataset["transforms"].insert(-1, resize)
    return Config(plain)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"image_shape": [3, 48, 72]}, f"{RESIZE}.image_shape"),
        ({"image_shape": [3, 40, 320]}, f"{RESIZE}.image_shape"),
        ({"image_shape": [3, 48, 320], "padding": False}, f"{RESIZE}.padding"),
        ({"image_shape": [3, 48, 72], "padding": False}, f"{RESIZE}.image_shape"),
        ({"image_shape": [3, 40, 320], "eval_mode": True}, f"{RESIZE}.image_shape"),
        ({"image_shape": [1, 48, 320]}, f"{RESIZE}.image_shape"),
        ({"image_shape": [3, 48, 640]}, f"{RESIZE}.image_shape"),
    ],
)
def test_another_resizing_is_a_warning(change: dict[str, Any], path: str, one: Config, host: Host) -> None:
    for role in ("train", "eval"):
        (issue,) = issues(one.with_values({RESIZE: change}), host, role)
        assert facts([issue]) == [("warning", "preprocessing_mismatch", path)] and SCALES in issue.message


def test_the_key_that_allows_it(one: Config, host: Host) -> None:
    other = one.with_values({RESIZE: {"image_shape": [3, 48, 72], "padding": False}})
    assert issues(other, host)
    assert issues(other.with_values({"Global.allow_different_preprocessing": True}), host) == []


@pytest.mark.parametrize(
    "change",
    [
        {"image_shape": [3, 32, 320]},  # one of the scales
        {"image_shape": [3, 64, 320], "padding": True},
        {"image_shape": [3, 48, 320], "eval_mode": True},  # PaddleOCR's korean_PP-OCRv5 evaluates so
    ],
)
def test_a_size_that_the_sampler_hands_out_passes(change: dict[str, Any], one: Config, host: Host) -> None:
    assert issues(one.with_values({RESIZE: change}), host) == []


def test_ds_width_trains_at_many_widths(one: Config, host: Host) -> None:
    config = one.with_values({"Train.dataset.ds_width": True})
    assert issues(config, host) == []
    (issue,) = issues(config.with_values({f"{RESIZE}.image_shape": [3, 40, 320]}), host)
    assert issue.path == f"{RESIZE}.image_shape"


@pytest.mark.parametrize(("name", "padding"), [("RecResizeImg", True), ("SVTRRecResizeImg", False)])
def test_the_same_by_another_transform_passes(name: str, padding: bool, one: Config, host: Host) -> None:
    options = {"image_shape": [3, 48, 320], "padding": padding}
    config = single_size(one, {name: options})
    assert issues(config.with_values({RESIZE: options}), host) == []
    (issue,) = issues(config.with_values({f"{RESIZE}.padding": not padding}), host)
    assert issue.path == f"{RESIZE}.padding"


def test_channels_in_another_order(one: Config, host: Host) -> None:
    path = "Eval.dataset.transforms.DecodeImage.img_mode"
    (issue,) = issues(one.with_values({path: "RGB"}), host)
    assert facts([issue]) == [("warning", "preprocessing_mismatch", path)]
    unsaid = one.thaw()
    unsaid["Eval"]["dataset"]["transforms"][0] = {"DecodeImage": None}  # PaddleOCR's default is RGB
    assert [issue.path for issue in issues(Config(unsaid), host)] == [path]


def test_pixels_normalised_in_another_way(one: Config, host: Host) -> None:
    config = single_size(one, {"ABINetRecResizeImg": {"image_shape": [3, 48, 320]}})
    squashed = config.with_values({RESIZE: {"image_shape": [3, 48, 320], "padding": False}})
    (issue,) = issues(squashed, host)
    assert (issue.path, "ImageNet" in issue.message) == (RESIZE, True)


def test_what_the_config_does_not_say_is_not_compared(one: Config, host: Host) -> None:
    config = one.thaw()
    config["Train"]["dataset"]["transforms"].insert(-1, {"NobodysTransform": None})
    config["Train"]["dataset"]["name"] = "SimpleDataSet"
    del config["Train"]["sampler"]
    assert read_preprocessing(Config(config), "Train") is None
    assert not any("preprocessing" in issue.message for issue in issues(Config(config), host))


def test_widths_of_batches_by_ratio(one: Config) -> None:
    values = {"Train.dataset.ds_width": True, SCALES: [[320, 48]], "Train.sampler.max_w": 150}
    found = read_preprocessing(one.with_values(values), "Train")
    assert found is not None and found.all_sizes
    assert found.sizes == ((3, 48, 48), (3, 48, 96), (3, 48, 144))


@pytest.mark.parametrize("key", ["Eval.dataset.transforms.RecResizeImg.infer_mode", "Global.infer_mode"])
def test_infer_mode_ignores_padding(key: str, one: Config, host: Host) -> None:
    """PaddleOCR widens then, whatever `padding` says; of `Global` every transform gets it."""
    squashed = {"image_shape": [3, 48, 320], "padding": False}
    config = single_size(one, {"SVTRRecResizeImg": squashed}).with_values({RESIZE: squashed})
    assert issues(config.with_values({"Global.infer_mode": False}), host) == []
    (issue,) = issues(config.with_values({"Global.infer_mode": None, key: True}), host)
    assert issue.path == f"{RESIZE}.padding"


@pytest.mark.parametrize("dataset", ["SimpleDataSet", "MultiScaleDataSet"])
def test_images_are_joined_after_the_transforms_that_load_them(
    dataset: str, one: Config, check: Check
) -> None:
    """PaddleOCR loads the other images by the first two transforms, unless `ext_op_transform_idx` says otherwise."""
    path = "Train.dataset"
    listed = one.thaw()["Train"]["dataset"]["transforms"]
    assert [*listed[0]] == ["DecodeImage"]
    joined = {
        "RecConAug": {"prob": 0.5, "ext_data_num": 2, "image_shape": [48, 320, 3], "max_text_length": 25}
    }
    config = one.with_values(
        {f"{path}.name": dataset, f"{path}.transforms": [listed[0], joined, *listed[1:]]}
    )
    key = f"{path}.ext_op_transform_idx"
    found = {value: [i for i in check(config.with_values({key: value})) if i.path == key] for value in (1, 2)}
    assert found[1] == [] and [i.code for i in found[2]] == ["bad_value"]
    without = one.thaw()
    without["Train"]["dataset"] |= {"name": dataset, "transforms": [listed[0], joined, *listed[1:]]}
    without["Train"]["dataset"].pop("ext_op_transform_idx", None)
    (issue,) = (i for i in check(without) if i.path == key)
    assert (
        issue.code == "missing_key"
        and "RecConAug" in issue.message
        and "ext_op_transform_idx: 1" in issue.message
    )
