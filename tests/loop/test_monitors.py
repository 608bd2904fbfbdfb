"""Monitors: what they measure, that recorded healthy runs raise nothing, and that each planted collapse is found."""

import json
import math

import numpy as np
import paddle
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.io.resources import config_root
from ppocr_ext.loop.hooks.collapse_rules import (
    CAUSES,
    HEALTHY_RUNS,
    LEARNT,
    StepRules,
    check_evaluation,
    check_gap,
    check_learning,
    healthy_ranges,
)
from ppocr_ext.loop.hooks.collapse_watch import first_loss, measure_model

RECORDED = json.loads(HEALTHY_RUNS.read_text(encoding="utf-8"))["runs"]


def logits_of(classes, count, sure=20.0):
    """Logits [B, T, count] whose greatest is that of ``classes`` [B, T]."""
    return paddle.to_tensor(sure * np.eye(count, dtype="float32")[np.asarray(classes)])


def test_measurements_are_those_of_the_outputs():
    classes = [[0, 1, 1, 0, 1], [0, 0, 0, 0, 0], [2, 2, 3, 3, 0], [2, 0, 3, 0, 0]]
    tokens = [[3, 3], [4, 3], [3, 3], [5, 3]]
    outputs = {"ctc": logits_of(classes, 4), "gtc": logits_of(tokens, 8)}
    labels = paddle.to_tensor([[1, 1], [2, 0], [2, 3], [3, 0]])
    found = measure_model(outputs, None, labels)
    sure = math.exp(20.0)  # 11 of 20 frames are blank
    blank = (11 * sure + 9) / (20 * (sure + 3))
    assert found == pytest.approx(
        {"text_length": 6 / 4, "distinct_texts": 3, "nrtr_end_share": 0.5, "blank_probability": blank}
    )
    same = paddle.to_tensor([[1, 1]] * 4)
    assert "distinct_texts" not in measure_model(outputs, None, same)  # equal labels may give equal texts
    named = {f"Student.{name}": value for name, value in outputs.items()}
    assert measure_model(named, "Student", labels) == found


def test_the_first_loss_of_equal_probabilities_is_at_most_that_of_chance():
    charset = Charset.default()
    outputs = {"ctc": paddle.zeros([2, 10, charset.ctc_classes])}
    chance = {"CTCLoss": paddle.to_tensor(10 * math.log(charset.ctc_classes)), "loss": paddle.to_tensor(1.0)}
    assert first_loss(chance, outputs, charset)["first_loss"] == pytest.approx(1.0)
    both = {"loss_nrtr_Student_0": paddle.to_tensor(3 * math.log(charset.nrtr_classes)), **chance}
    assert first_loss(both, outputs, charset)["first_loss"] == pytest.approx(3.0)


def test_the_first_loss_of_a_decoder_alone_is_compared_with_its_chance():
    charset = Charset.default()
    outputs = {"gtc": paddle.zeros([2, 10, charset.nrtr_classes])}
    loss = {"loss": paddle.to_tensor(3 * math.log(charset.nrtr_classes))}
    assert first_loss(loss, outputs, charset)["first_loss"] == pytest.approx(3.0)


def rows(columns):
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        yield {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("name", RECORDED)
def test_a_healthy_run_raises_nothing(name):
    ranges, best = healthy_ranges(), 0.0
    events = [*rows(RECORDED[name]["train"]), *rows(RECORDED[name]["eval"])]
    rules, checked = StepRules(ranges), 0
    for row in sorted(events, key=lambda row: row["step"]):
        if "acc" in row:
            best = max(best, row["acc"])
            assert not check_evaluation(row["step"], row, row["acc"], best, ranges)
        else:
            checked += 1
            assert not rules.see(row["step"], row, learnt=best >= LEARNT)
    assert checked >= 3


def test_every_recipe_is_recorded():
    """A recipe is a shipped config with a run folder of its own, and no overlay.

    Of a decoder alone nothing is recorded yet.
    """
    own = {
        str(file.relative_to(config_root()))
        for file in config_root().rglob("*.yml")
        if file.parent.name != "overlays" and "save_model_dir:" in file.read_text(encoding="utf-8")
    }
    assert own and own - {"captcha/vit_nrtr.yml"} <= set(RECORDED)


HEALTHY = {
    "blank_share": 0.8,
    "blank_probability": 0.8,
    "distinct_texts": 7.0,
    "text_length": 5.0,
    "nrtr_end_share": 0.0,
}
PLANTED = {
    "certain_blanks": {
        "blank_share": 1.0,
        "blank_probability": 1.0,
        "distinct_texts": 1.0,
        "text_length": 0.0,
    },
    "only_blanks": {"blank_share": 1.0, "blank_probability": 0.97, "distinct_texts": 1.0, "text_length": 0.0},
    "same_text": {"distinct_texts": 1.0, "text_length": 4.0},
    "nrtr_ends": {"nrtr_end_share": 1.0},
}


@pytest.mark.parametrize("code", PLANTED)
def test_a_collapse_after_learning_is_found_in_the_third_measurement(code):
    rules = StepRules(healthy_ranges())
    for step in range(10, 500, 10):
        assert not rules.see(step, HEALTHY, learnt=True)
    bad = {**HEALTHY, **PLANTED[code]}
    assert not rules.see(500, bad, True) and not rules.see(510, bad, True)
    resumed = StepRules(healthy_ranges(), rules.state())
    codes = {finding.code for finding in resumed.see(520, bad, True)}
    assert code in codes and codes <= {code, "only_blanks"}


@pytest.mark.parametrize("code", ["only_blanks", "same_text", "nrtr_ends"])
def test_what_a_run_passes_through_at_its_begin_is_found_later(code):
    rules, bad, ranges = StepRules(healthy_ranges()), {**HEALTHY, **PLANTED[code]}, healthy_ranges()
    names = {"only_blanks": "blank_steps", "same_text": "same_text_steps", "nrtr_ends": "nrtr_steps"}
    limit = ranges[names[code]]
    found = {step: rules.see(step, bad, learnt=False) for step in range(10, int(limit) + 50, 10)}
    assert [step for step, findings in found.items() if findings][0] == limit + 10


def test_one_odd_batch_is_no_collapse():
    rules = StepRules(healthy_ranges())
    bad = {**HEALTHY, **PLANTED["nrtr_ends"]}
    assert not any(rules.see(step, HEALTHY if step % 30 == 0 else bad, True) for step in range(10, 900, 10))


def test_an_evaluation_far_below_the_best_is_found():
    ranges = healthy_ranges()
    assert [finding.code for finding in check_evaluation(60, {}, 0.0, 0.95, ranges)] == ["accuracy_fell"]
    assert not check_evaluation(60, {"nrtr_empty": 0.0}, 0.9, 0.95, ranges)
    empty = {"nrtr_empty": 1.0}
    assert [f.code for f in check_evaluation(60, empty, 0.9, 0.95, ranges)] == ["nrtr_empty"]
    assert not check_evaluation(60, empty, 0.0, 0.0, ranges)  # a run that begins reads so too
    assert [f.code for f in check_evaluation(9000, empty, 0.0, 0.0, ranges)] == ["nrtr_empty"]


@pytest.mark.parametrize(
    ("loss", "guess", "values", "code"),
    [
        (48.0, 48.9, {"blank_share": 1.0}, "constant_guess"),
        (70.0, 48.9, {"blank_share": 0.7}, "constant_guess"),
        (45.3, 48.9, {"blank_share": 0.96}, "nothing_right"),  # a healthy run at a third of its steps
        (45.3, 48.9, {"blank_share": 1.0}, "only_blanks"),
        (2.0, 1.8, {"nrtr_end_share": 1.0}, "nrtr_ends"),  # of a decoder alone
        (2.0, 1.8, {"nrtr_end_share": 0.2}, "constant_guess"),
        (math.nan, math.nan, {}, "nothing_right"),
    ],
)
def test_what_a_run_has_not_learnt(loss, guess, values, code):
    found = check_learning(loss, guess, values, healthy_ranges(), ["the neck"])
    assert found.code == code and found.causes == ("the neck", *CAUSES[code])
    assert ("loss" in found.text) != math.isnan(loss)


@pytest.mark.parametrize(
    ("loss", "lines", "accuracy", "is_found"),
    [(0.1, 60, 0.16, True), (0.1, 60, 0.8, False), (0.8, 60, 0.16, False), (0.1, 12, 0.16, False)],
)
def test_an_evaluation_far_below_the_training_is_found(loss, lines, accuracy, is_found):
    found = check_gap([loss] * lines, accuracy)
    assert (found is not None and found.code == "by_heart") == is_found
