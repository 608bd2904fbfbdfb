"""A frozen teacher pools as its student: ``train_frames`` is filled in where the backbone has that key."""

from __future__ import annotations

from typing import Any

import pytest

import ppocr_ext.modeling  # noqa: F401 - registers the backbones
from ppocr_ext.config import Config, derive_values

KEY = "Architecture.Models.Teacher.Backbone.train_frames"


def derived(teacher: Any, student: Any, frozen: bool = True) -> Config:
    models = {
        "Teacher": {"freeze_params": frozen, "Backbone": teacher},
        "Student": {"Backbone": student},
    }
    return derive_values(Config({"Architecture": {"Models": models}}))


@pytest.mark.parametrize("value", ["width", 80])
def test_a_frozen_teacher_gets_the_value_of_its_student(value: Any) -> None:
    config = derived({"name": "PPHGNetV2_B4"}, {"name": "PPLCNetV3", "train_frames": value})
    assert config.at(KEY) == value
    assert config.at("computed") == (KEY,)
    assert derive_values(config).thaw() == config.thaw()


@pytest.mark.parametrize(
    ("teacher", "student"),
    [
        ({"name": "SVTRv2"}, {"name": "PPLCNetV3", "train_frames": "width"}),  # it has no such key
        ({"name": "Nobody"}, {"name": "PPLCNetV3", "train_frames": "width"}),
        (
            {"name": "PPLCNetV3", "train_frames": 40},
            {"name": "PPLCNetV3", "train_frames": "width"},
        ),  # its own
        ({"name": "PPLCNetV3"}, {"name": "PPLCNetV3"}),
        (
            {"name": "PPLCNetV3"},
            {"name": "PPLCNetV3", "train_frames": "height"},
        ),  # the student is to be blamed
        ({"name": "PPLCNetV3"}, {"name": "PPLCNetV3", "train_frames": [True]}),
        (None, {"name": "PPLCNetV3", "train_frames": "width"}),
        ("PPLCNetV3", "PPLCNetV3"),
    ],
)
def test_nothing_else_is_filled_in(teacher: Any, student: Any) -> None:
    config = derived(teacher, student)
    assert config.at("Architecture.Models.Teacher.Backbone") == teacher
    assert config.at("computed", None) is None


def test_a_trained_teacher_keeps_its_default() -> None:
    config = derived({"name": "PPLCNetV3"}, {"name": "PPLCNetV3", "train_frames": "width"}, frozen=False)
    assert config.at(KEY, None) is None
