"""Images: decoded before they are worked on, of sizes that there are, and of one height in both sections."""

from __future__ import annotations

from typing import Any

import pytest
from official_facts import Check, errors_at, facts

from ppocr_ext.config import Config

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


@pytest.mark.parametrize("name", ["RecResizeImg", "RecAug", "SVTRRecAug"])
def test_a_transform_of_images_before_decoding(name: str, one: Config, check: Check) -> None:
    options = {"image_shape": [3, 48, 320]} if name == "RecResizeImg" else None
    path = "Train.dataset.transforms"
    listed = [{name: options}, *(t for t in transforms_of(one, "Train") if name not in t)]
    found = check(one.with_values({path: listed}))
    assert "image_not_decoded" in [issue.code for issue in errors_at(found, f"{path}.{name}")]


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
