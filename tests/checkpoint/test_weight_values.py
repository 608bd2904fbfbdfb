"""Weights and states that no training writes: each is refused by name, before a run begins with it."""

import pickle

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.errors import WeightsError


def network(width=4):
    return paddle.nn.Sequential(
        ("backbone", paddle.nn.Sequential(paddle.nn.Linear(3, width), paddle.nn.Linear(width, 3))),
        ("norm", paddle.nn.BatchNorm1D(3)),
    )


def written(file, change):
    """Write the weights of a network, after ``change`` of its arrays."""
    state = {name: value.numpy() for name, value in network().state_dict().items()}
    change(state)
    file.write_bytes(pickle.dumps(state))
    return file


def put(name, value):
    def change(state):
        state[name] = value(state[name])

    return change


def first(number):
    def value(array):
        array.flat[0] = number
        return array

    return value


def without_backbone(state):
    for name in state:
        if name.startswith("backbone"):
            state[name] = np.zeros_like(state[name])


@pytest.mark.parametrize(
    ("code", "fact", "change"),
    [
        ("nonfinite_weights", "backbone.1.weight", put("backbone.1.weight", first(np.nan))),
        ("nonfinite_weights", "norm._mean", put("norm._mean", first(-np.inf))),
        ("bad_content", "complex", put("backbone.0.bias", lambda a: a.astype("complex64"))),
        ("negative_variance", "norm._variance", put("norm._variance", first(-0.5))),
        ("zero_weights", "backbone", without_backbone),
    ],
)
def test_numbers_of_no_trained_network_are_refused(tmp_path, code, fact, change):
    model = network()
    before = model.backbone[0].weight.numpy()
    with raises_code(WeightsError, code, "latest.pdparams", fact):
        load_weights(model, written(tmp_path / "latest.pdparams", change))
    np.testing.assert_array_equal(model.backbone[0].weight.numpy(), before)  # nothing was loaded


def test_zeros_that_a_network_may_have_and_entries_that_are_not_loaded_are_accepted(tmp_path):
    def change(state):
        state["backbone.1.weight"] *= 0
        state["backbone.0.bias"] *= 0
        state["other"] = np.array([np.nan])

    assert load_weights(network(), written(tmp_path / "latest.pdparams", change)).matched


@pytest.mark.parametrize(
    "states", [{"epoch": -3}, {"epoch": 1, "global_step": -1}, {"step_in_epoch": 1.5}, {"epoch": "one"}]
)
def test_a_position_that_no_run_has_is_refused(tmp_path, states):
    (tmp_path / "latest.states").write_bytes(pickle.dumps(states))
    with raises_code(WeightsError, "bad_content", "latest.states", list(states)[-1]):
        Checkpoint(tmp_path / "latest").train_state()
