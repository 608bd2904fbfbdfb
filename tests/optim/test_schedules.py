"""Learning rates step by step: PaddleOCR's numbers, and what a resumed run gets."""

import logging
import math
from typing import Any

import pytest
from error_codes import raises_code
from parity import load_case

from ppocr_ext.errors import ConfigError, UnknownComponentError
from ppocr_ext.optim import build_lr_scheduler

CASE = load_case("lr_schedules").info
SCHEDULES = CASE["schedules"]


def rates(scheduler: Any, count: int) -> list[float]:
    seen = []
    for _ in range(count):
        seen.append(scheduler())
        scheduler.step()
    return seen


# The parity file holds what `get_lr()` answers after each step. Where a schedule computes a rate from the one
# in force, that is not the rate in force but the next use of the same factor; these are checked by their formula too.
FROM_THE_ONE_BEFORE = {"Cosine_plain": 70, "TwoStepCosine": 1400}


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_parity(name):
    expected = SCHEDULES[name]["lr"]
    config = SCHEDULES[name]["config"]
    scheduler = build_lr_scheduler(config, CASE["epochs"], CASE["step_each_epoch"])
    asked = []
    for _ in expected:
        asked.append(scheduler.get_lr())
        scheduler.step()
    assert asked == pytest.approx(expected, rel=1e-9, abs=1e-15)
    in_force = rates(build_lr_scheduler(config, CASE["epochs"], CASE["step_each_epoch"]), len(expected))
    if name in FROM_THE_ONE_BEFORE:
        length = FROM_THE_ONE_BEFORE[name]
        expected = [0.001 * (1 + math.cos(math.pi * at / length)) / 2 for at in range(len(expected))]
    assert in_force == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("name", ["CyclicalCosine", "OneCycle", "TwoStepCosine"])
def test_the_name_of_paddleocrs_class_is_the_same_schedule(name):
    config = next(each["config"] for each in SCHEDULES.values() if each["config"]["name"] == name)
    first, second = (
        build_lr_scheduler({**config, "name": each}, CASE["epochs"], CASE["step_each_epoch"])
        for each in (name, f"{name}Decay")
    )
    assert rates(first, 70) == rates(second, 70)


@pytest.mark.parametrize("warmup_epoch", [0, 1])
@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - {"Const"}))  # a constant rate has no state
def test_a_resumed_schedule_goes_on(name, warmup_epoch):
    config = dict(SCHEDULES[name]["config"])
    if name not in ("LinearWarmupCosine", "DecayLearningRate"):
        config["warmup_epoch"] = warmup_epoch
    whole, resumed = (build_lr_scheduler(config, CASE["epochs"], CASE["step_each_epoch"]) for _ in range(2))
    rates(whole, 31)
    resumed.set_state_dict(whole.state_dict())
    assert rates(resumed, 20) == pytest.approx(rates(whole, 20), rel=1e-9, abs=1e-15)


def test_one_cycle_of_three_phases_and_straight_lines():
    config = {"name": "OneCycle", "max_lr": 0.25, "three_phase": True, "anneal_strategy": "linear"}
    seen = rates(build_lr_scheduler(config, 10, 10), 100)
    assert seen[0] == pytest.approx(0.01)
    assert seen[29] == pytest.approx(0.25)
    assert seen[58] == pytest.approx(0.01)
    assert seen[99] == pytest.approx(1e-6)
    assert seen[15] == pytest.approx(0.01 + 0.24 * 15 / 29)


def test_two_step_cosine_past_its_first_cosine():
    plain = rates(build_lr_scheduler({"name": "TwoStepCosine", "learning_rate": 1.0}, 300, 1), 260)
    assert plain[100] == pytest.approx(0.5)
    assert plain[200:] == [0.0] * 60
    config = {"name": "TwoStepCosine", "learning_rate": 1.0, "warmup_epoch": 10}
    warmed = rates(build_lr_scheduler(config, 300, 1), 260)
    assert warmed[210] == pytest.approx(0.0)
    assert warmed[211] == pytest.approx((1 + math.cos(math.pi * 201 / 300)) / 2)


@pytest.mark.parametrize(("config", "code", "found"), [
    ({"name": "Cosine", "learning_rate": "fast"}, "bad_value", "Optimizer.lr: Cosine"),
    ({"name": "Const", "learning_rate": "fast"}, "bad_value", "Optimizer.lr: Const"),
    ({"name": "Piecewise", "decay_epochs": [2, 4], "values": [0.1, 0.01]}, "bad_value", "decay_epochs"),
    ({"name": "CyclicalCosine", "learning_rate": 0.1, "cycle": 0}, "bad_value", "cycle"),
    ({"name": "OneCycle", "max_lr": 0.1, "anneal_strategy": "square"}, "bad_value", "anneal_strategy"),
    ({"name": "Linear", "learning_rate": 0.0, "warmup_epoch": 1}, "bad_value", "start_lr"),
    ({"name": "Cosine"}, "missing_key", "learning_rate"),
    ({"name": "Cosine", "learning_rate": 0.1, "warmup_epochs": 2}, "unknown_key", "'warmup_epoch'"),
])  # fmt: skip
def test_what_cannot_work_is_refused(config, code, found):
    with raises_code(ConfigError, code, found):
        build_lr_scheduler(config, 10, 7)


def test_an_unknown_schedule_lists_the_choices():
    with raises_code(UnknownComponentError, "unknown_component", "'Cosin'", "LinearWarmupCosine"):
        build_lr_scheduler({"name": "Cosin", "learning_rate": 0.1}, 10, 7)


def test_a_key_without_effect_is_reported(caplog):
    with caplog.at_level(logging.WARNING, logger="ppocr_ext"):
        build_lr_scheduler({"name": "DecayLearningRate", "learning_rate": 0.1, "end_lr": 0.01}, 10, 7)
    assert [record.args[-1] for record in caplog.records] == ["end_lr"]
