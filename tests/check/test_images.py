"""Images: decoded before they are worked on, of sizes that there are, and of one height in both sections."""

from __future__ import annotations

from typing import Any

import pytest
from official_facts import Check

from ppocr_ext.config import Config

SHAPE = "Eval.dataset.transforms.RecResizeImg.image_shape"
SCALES = "Train.sampler.scales"
MODE = "Train.dataset.transforms.DecodeImage.img_mode"


def transforms_of(config: Config, mode: str) -> list[Any]:
    found: list[Any] = config.thaw()[mode]["dataset"]["transforms"]
    return found


@pytest.mark.parametrize("shape", [128, "3,48,320", [3, 32], [3, 32, -128], [3, 32.0, 128], [3, True, 128]])
def test_a_shape_that_is_none(shape: Any, one: Config, check: Check) -> None:
    (issue,) = check(one.with_values({SHAPE: shape}))
    assert issue.startswith(f"error: {SHAPE}: {shape!r} is not [channels, height, width] of positive whole")


@pytest.mark.parametrize("scales", [5, [], [320, 48], [[320, -48]], [[320]], [[320, 48, 3]], [["320", 48]]])
def test_scales_that_are_none(scales: Any, one: Config, check: Check) -> None:
    (issue,) = check(one.with_values({SCALES: scales}))
    assert issue.startswith(f"error: {SCALES}: {scales!r} is no list of [width, height]")


def test_a_scale_of_which_nothing_is_left(one: Config, check: Check) -> None:
    (issue,) = check(one.with_values({SCALES: [[320, 32], [320, 8]]}))
    assert "[320, 8] is rounded down to nothing: sizes are multiples of divided_factor, [8, 16]." in issue


@pytest.mark.parametrize(("mode", "why"), [("BRG", ""), ("bgr", ""), ("GRAY", " DecodeImage reads three ")])
def test_a_mode_that_images_are_not_decoded_to(mode: str, why: str, one: Config, check: Check) -> None:
    (issue,) = check(one.with_values({MODE: mode}))
    assert issue.startswith(f"error: {MODE}: {mode!r} is none of BGR, RGB.{why}")
    assert check(one.with_values({MODE: "RGB", MODE.replace("Train", "Eval"): "RGB"})) == []


def test_a_transform_of_images_without_decoding(one: Config, check: Check) -> None:
    path = "Eval.dataset.transforms"
    without = transforms_of(one, "Eval")[1:]
    (issue,) = check(one.with_values({path: without}))
    assert issue.startswith(
        f"error: {path}.RecResizeImg: it needs a decoded image: SimpleDataSet gives image"
    )
    assert "Put `- DecodeImage: {img_mode: BGR}` first." in issue


@pytest.mark.parametrize("name", ["RecResizeImg", "RecAug", "SVTRRecAug", "NormalizeImage"])
def test_a_transform_of_images_before_decoding(name: str, one: Config, check: Check) -> None:
    options = {"image_shape": [3, 48, 320]} if name == "RecResizeImg" else None
    path = "Train.dataset.transforms"
    listed = [{name: options}, *(t for t in transforms_of(one, "Train") if name not in t)]
    found = check(one.with_values({path: listed}))
    said = f"error: {path}.{name}: it needs a decoded image, but DecodeImage comes after it. Put DecodeImage before"
    assert [issue for issue in found if "decoded image" in issue and issue.startswith(said)] != []


def test_image_files_that_nothing_decodes(one: Config, check: Check) -> None:
    path = "Train.dataset.transforms"
    bare = [t for t in transforms_of(one, "Train") if not {"DecodeImage", "RecAug"} & t.keys()]
    (issue,) = check(one.with_values({path: bare}))
    assert issue.startswith(
        f"error: {path}: MultiScaleDataSet gives image files as they are, and no transform"
    )


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
def test_keys_of_the_sampler_that_are_none(key: str, value: Any, one: Config, check: Check) -> None:
    path = f"Train.sampler.{key}"
    found = check(one.with_values({path: value, "Train.dataset.ds_width": True}))
    assert any(issue.startswith(f"error: {path}: ") for issue in found)


def test_a_scale_beside_a_factor_that_is_none(one: Config, check: Check) -> None:
    found = check(one.with_values({SCALES: [[4, 4]], "Train.sampler.divided_factor": 8}))
    assert any("[8, 16]" in issue and issue.startswith(f"error: {SCALES}: ") for issue in found)


def test_keys_of_several_kinds_are_compared(one: Config, check: Check) -> None:
    listed = [{"NormalizeImage": {1: 2, "mean": [0]}}, *transforms_of(one, "Eval")]
    found = check(one.with_values({"Eval.dataset.transforms": listed}))
    assert any("normalisation" in issue for issue in found)
