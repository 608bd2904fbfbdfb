"""Values that follow from others: ``max_text_length`` of each branch, ``train_frames`` of a frozen teacher."""

from __future__ import annotations

from typing import Any

import pytest

import ppocr_ext.modeling  # noqa: F401 - registers the backbones
from ppocr_ext import registry
from ppocr_ext.config import Config, derive_values
from ppocr_ext.config.node import PlaceKind

HEADS = [
    {"CTCHead": {"Neck": {"name": "reshape"}}},
    {"NRTRHead": {"nrtr_dim": 32}},
    {"NRTRHead": {"nrtr_dim": 32, "max_text_length": 12}},
    {"NRTRHead": None},
    {"SARHead": {"enc_dim": 8}},
]
LIST = "Architecture.Models.{}.Head.head_list"


def config(longest: Any, heads: list[Any] = HEADS) -> Config:
    models = {name: {"Head": {"name": "MultiHead", "head_list": heads}} for name in ("Teacher", "Student")}
    settings = {} if longest is None else {"max_text_length": longest}
    return Config({"Global": settings, "Architecture": {"Models": models}}, origin="a.yml")


class ForeignHead:
    def __init__(self, in_channels: int, out_channels: int, max_text_length: int = 30) -> None:
        pass


class HeadWithoutLength:
    def __init__(self, in_channels: int, out_channels: int) -> None:
        pass


@pytest.mark.parametrize(("head", "sar"), [(ForeignHead, 40), (HeadWithoutLength, None), (None, None)])
def test_each_branch_of_each_model_that_has_none(
    monkeypatch: pytest.MonkeyPatch, head: type | None, sar: int | None
) -> None:
    monkeypatch.delitem(registry.HEADS._own, "SARHead", raising=False)  # as a host or a plugin may have it
    monkeypatch.setattr(registry.HEADS, "_find_foreign", {"SARHead": head}.get)
    derived = derive_values(config(40))
    for name in ("Teacher", "Student"):
        entries = LIST.format(name)
        found = [derived.at(f"{entries}.{i}.NRTRHead.max_text_length") for i in (1, 2, 3)]
        assert found == [40, 12, 40]
        assert derived.at(f"{entries}.4.SARHead.max_text_length", None) == sar
        assert derived.place(f"{entries}.1.NRTRHead.max_text_length").kind is PlaceKind.COMPUTED
        assert derived.place(f"{entries}.2.NRTRHead.max_text_length").kind is PlaceKind.FILE
        assert "max_text_length" not in derived.at(f"{entries}.0.CTCHead")
    listed = derived.at("computed")
    assert len(listed) == (4 if sar is None else 6)
    assert f"{LIST.format('Student')}.1.NRTRHead.max_text_length" in listed


@pytest.mark.parametrize(
    ("longest", "heads"),
    [*((longest, HEADS) for longest in (None, 0, True, "25"))]
    + [(40, heads) for heads in (None, "NRTRHead", ["NRTRHead"], [{"NRTRHead": 3}])],
)
def test_without_a_length_or_a_list_in_order_nothing_changes(longest: Any, heads: Any) -> None:
    given = config(longest, heads)
    assert derive_values(given) is given


KEY = "Architecture.Models.Teacher.Backbone.train_frames"


def derived(teacher: Any, student: Any, frozen: bool = True) -> Config:
    models = {"Teacher": {"freeze_params": frozen, "Backbone": teacher}, "Student": {"Backbone": student}}
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
        ({"name": "PPLCNetV3", "train_frames": 40}, {"name": "PPLCNetV3", "train_frames": "width"}),
        ({"name": "PPLCNetV3"}, {"name": "PPLCNetV3"}),
        ({"name": "PPLCNetV3"}, {"name": "PPLCNetV3", "train_frames": "height"}),  # the fault of the student
        ("PPLCNetV3", "PPLCNetV3"),
    ],
)
def test_nothing_else_is_filled_in(teacher: Any, student: Any) -> None:
    config = derived(teacher, student)
    assert config.at("Architecture.Models.Teacher.Backbone") == teacher
    assert config.at("computed", None) is None

    trained = derived({"name": "PPLCNetV3"}, {"name": "PPLCNetV3", "train_frames": "width"}, frozen=False)
    assert trained.at(KEY, None) is None
