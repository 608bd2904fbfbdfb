"""Legal settings with which a training rarely succeeds are named; the right setting beside each is not."""

from __future__ import annotations

from typing import Any

import pytest
from official_facts import Check, facts

from ppocr_ext.check import objective
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.config import Config, load
from ppocr_ext.host import Host
from ppocr_ext.io.resources import config_root

RATE = "Optimizer.lr.learning_rate"
WEIGHT = "Loss.loss_config_list.DistillationCTCLoss.weight"
PAIRS = "Loss.loss_config_list.DistillationDKDLoss.model_name_pairs"
MOMENTUM = {"name": "Momentum", "momentum": 0.9, "lr": {"learning_rate": 0.001}}
# (values that the config `one` or `two` gets, code, path), and values of a twin in which nothing is wrong
ONE: list[tuple[dict[str, Any], str, str, dict[str, Any]]] = [
    ({RATE: 10}, "high_learning_rate", RATE, {RATE: 0.001}),
    ({RATE: 0.02, "Optimizer.clip_norm": 1.0}, "high_learning_rate", RATE, {RATE: 0.005, "Optimizer.clip_norm": 1.0}),
    ({RATE: 0.002}, "no_gradient_clip", RATE, {RATE: 0.002, "Optimizer.clip_norm_global": 5.0}),
    ({"Train.sampler.first_bs": 16}, "no_gradient_clip", RATE, {RATE: 0.0001, "Train.sampler.first_bs": 16}),
    ({"Train.sampler.first_bs": 16}, "no_gradient_clip", RATE, {"Train.sampler.first_bs": 16, "Global.accumulate": 8}),
    ({"Optimizer.weight_decay": 1000}, "high_weight_decay", "Optimizer.weight_decay", {"Optimizer.weight_decay": 0.5}),
    ({"Optimizer.lr.warmup_epoch": 50}, "long_warm_up", "Optimizer.lr.warmup_epoch", {"Global.epoch_num": 101}),
    ({"Global.epoch_num": 2}, "long_warm_up", "Optimizer.lr.warmup_epoch", {"Global.epoch_num": 3}),
    ({RATE: 0}, "zero_learning_rate", RATE, {RATE: 0.001}),
    ({"Optimizer": {**MOMENTUM, "momentum": 9.0}}, "high_momentum", "Optimizer.momentum", {"Optimizer": MOMENTUM}),
    ({"Train.sampler.first_bs": 0}, "small_batch", "Train.sampler.first_bs", {}),
    ({"Loss.weight_2": 0}, "loss_weight", "Loss.weight_2", {"Loss.weight_2": 0.1}),
    ({"Loss.weight_1": -1.0}, "loss_weight", "Loss.weight_1", {"Loss.weight_1": 1.0}),
]  # fmt: skip
TWO: list[tuple[dict[str, Any], str, str, dict[str, Any]]] = [
    ({WEIGHT: 0}, "loss_weight", WEIGHT, {WEIGHT: 0.01}),
    ({WEIGHT: -0.5}, "loss_weight", WEIGHT, {WEIGHT: 0.5}),
    ({"Metric.key": "Teacher"}, "frozen_is_evaluated", "Metric.key", {"Metric.key": "Student"}),
    ({"PostProcess.model_name": ["Teacher"]}, "frozen_is_evaluated", "PostProcess.model_name",
     {"PostProcess.model_name": ["Teacher", "Student"]}),
]  # fmt: skip


@pytest.mark.parametrize(("values", "code", "path", "right"), [*ONE, *TWO])
def test_a_doubtful_setting_is_named(
    values: dict[str, Any],
    code: str,
    path: str,
    right: dict[str, Any],
    one: Config,
    two: Config,
    check: Check,
) -> None:
    is_one = (values, code, path, right) in ONE
    config = one if is_one else two
    assert facts(check(config.with_values(values))) == [("warning", code, path)]
    assert check(config.with_values(right)) == []
    assert not is_one or check(config.with_values(values), "eval") == []


def test_a_sampler_that_would_never_end_is_an_error(one: Config, check: Check) -> None:
    values = {"Train.sampler.first_bs": 0, "Train.sampler.fix_bs": True}
    assert facts(check(one.with_values(values))) == [("error", "small_batch", "Train.sampler.first_bs")]


@pytest.mark.parametrize(
    "value", [None, "x", True, 0.5, -1, 10**400, float("nan"), float("inf"), [], {}, [1, [2]]]
)
def test_wrong_values_are_left_to_the_other_checks(value: Any, two: Config, host: Host) -> None:
    keys = ["lr", "lr.values", "lr.warmup_epoch", "weight_decay"]
    sections = ["Optimizer", "Train.sampler", "Loss.loss_config_list", "Architecture.Models", "Metric.key"]
    others = [
        RATE,
        WEIGHT,
        PAIRS,
        "Global.epoch_num",
        "Train.sampler.first_bs",
        "PostProcess.model_name",
        "Train.dataset.label_file_list",
    ]
    for path in [*sections, *others, *(f"Optimizer.{key}" for key in keys)]:
        objective.check_training(ConfigCheck(two.with_values({path: value}), host, "train"))


CODES = {"high_learning_rate", "no_gradient_clip", "high_weight_decay", "long_warm_up"} | {
    "zero_learning_rate", "high_momentum", "small_batch", "loss_weight",
    "frozen_is_evaluated"
}  # fmt: skip


def test_no_shipped_config_gives_a_warning(check: Check) -> None:
    root, found = config_root(), {}
    files = [
        file
        for file in sorted(root.rglob("*.yml"))
        if file.parent.name != "overlays" and file.stem != "v3_data"
    ]
    assert len(files) > 40
    for file in files:
        found[file] = [issue for issue in check(load([file])) if issue.code in CODES]
    assert {file: issues for file, issues in found.items() if issues} == {}
