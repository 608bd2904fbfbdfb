"""Values that follow from others: ``max_text_length`` of each branch, ``train_frames`` of a frozen teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import ppocr_ext.modeling  # noqa: F401 - registers the backbones
from ppocr_ext import registry
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config, derive_values, load
from ppocr_ext.config.node import PlaceKind
from ppocr_ext.io.resources import config_path, config_root

# v3_data.yml has no base: it removes a key of the file that it goes over
# v3_data is a part of files; corrected_losses removes what only its base has, see tests/test_configs.py
SHIPPED = sorted(f for f in config_root().rglob("*.yml") if f.stem not in ("v3_data", "corrected_losses"))

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


def test_shipped_configs_say_it_once() -> None:
    assert len(SHIPPED) > 10
    assert [path for path in SHIPPED if path.read_text().count("max_text_length:") > 1] == []
    filled = 0
    for path in SHIPPED:
        derived = derive_values(load(path))
        computed = [derived.at(key) for key in derived.at("computed", ()) if key.endswith("max_text_length")]
        assert set(computed) <= {derived.at("Global.max_text_length", None)}, path
        filled += len(computed)
    assert filled > 0


def test_one_option_sets_all_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dict.txt").write_text("\n".join("0123456789") + "\n")
    command = ["config", "-c", str(config_path("quickstart/distill.yml"))]
    options = ["Global.max_text_length=80", f"Global.character_dict_path={tmp_path / 'dict.txt'}"]
    main([*command, "-o", *options])
    told = capsys.readouterr()
    assert "max_text_length" not in told.err
    plain = yaml.safe_load(told.out)
    for name in ("Teacher", "Student"):
        (_, nrtr) = plain["Architecture"]["Models"][name]["Head"]["head_list"]
        assert nrtr["NRTRHead"]["max_text_length"] == 80
    given = "Architecture.Models.Student.Head.head_list.NRTRHead.max_text_length"
    assert main([*command, "--check", "-o", *options, f"{given}=20"]) == 2
    assert f"{given}=20: {given}: " in capsys.readouterr().out


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
        ({"name": "Nobody"}, {"name": "PPLCNetV3", "train_frames": "width"}),
        ({"name": "PPLCNetV3", "train_frames": 40}, {"name": "PPLCNetV3", "train_frames": "width"}),
        ({"name": "PPLCNetV3"}, {"name": "PPLCNetV3"}),
        ({"name": "PPLCNetV3"}, {"name": "PPLCNetV3", "train_frames": "height"}),  # the fault of the student
        ({"name": "PPLCNetV3"}, {"name": "PPLCNetV3", "train_frames": [True]}),
        (None, {"name": "PPLCNetV3", "train_frames": "width"}),
        ("PPLCNetV3", "PPLCNetV3"),
    ],
)
def test_nothing_else_is_filled_in(teacher: Any, student: Any) -> None:
    config = derived(teacher, student)
    assert config.at("Architecture.Models.Teacher.Backbone") == teacher
    assert config.at("computed", None) is None

    trained = derived({"name": "PPLCNetV3"}, {"name": "PPLCNetV3", "train_frames": "width"}, frozen=False)
    assert trained.at(KEY, None) is None
