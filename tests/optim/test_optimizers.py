"""Optimizers: which parameters they get, how they decay and clip, and what they do to a parameter in one step."""

import math
from typing import Any

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from parity import load_case

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.optim import build_optimizer
from ppocr_ext.registry import OPTIMIZERS, SCHEDULES

RATE = {"name": "Const", "learning_rate": 0.1}
START = 2.0


class Branch(paddle.nn.Layer):
    """A layer with parameters of given names, nested by their dots."""

    def __init__(self, shapes: dict[str, list[int]]) -> None:
        super().__init__()
        inner: dict[str, dict[str, list[int]]] = {}
        for name, shape in shapes.items():
            first, _, rest = name.partition(".")
            if rest:
                inner.setdefault(first, {})[rest] = shape
            else:
                self.add_parameter(
                    name,
                    self.create_parameter(shape, default_initializer=paddle.nn.initializer.Constant(START)),
                )
        for first, below in inner.items():
            self.add_sublayer(first, Branch(below))


def two_branches() -> Branch:
    return Branch({"Student.fc.weight": [2, 3], "Student.fc.bias": [3], "Teacher.fc.weight": [2, 3]})


def step(model: Branch, config: dict[str, Any], gradient: float) -> dict[str, np.ndarray]:
    """Parameters after one step on a loss whose gradient is ``gradient`` everywhere."""
    optimizer, _ = build_optimizer(config, 10, 7, model)
    sum((parameter * gradient).sum() for parameter in model.parameters()).backward()
    optimizer.step()
    return {name: parameter.numpy() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(("config", "expected"), [
    ({"name": "Momentum", "momentum": 0.9}, START - 0.1 * 0.5),
    ({"name": "Adam"}, START - 0.1),
    ({"name": "AdamW", "weight_decay": 0.0}, START - 0.1),
    ({"name": "RMSProp", "rho": 0.75, "epsilon": 0.0}, START - 0.1 / math.sqrt(0.25)),
    ({"name": "Adadelta", "rho": 0.75, "epsilon": 0.01}, START - 0.1 * 0.5 * math.sqrt(0.01 / (0.0625 + 0.01))),
])  # fmt: skip
def test_one_step_of_each(config, expected):
    for values in step(two_branches(), {**config, "lr": RATE}, gradient=0.5).values():
        np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_adamw_decays_what_paddleocr_decays():
    decayed = load_case("adamw_decay").info["decayed"]
    shapes = load_case("model_svtrv2_tiny").info["state_dict"]
    model = Branch({name: shapes[name] for name in decayed})
    config = {
        "name": "AdamW",
        "lr": RATE,
        "weight_decay": 0.05,
        "no_weight_decay_name": "norm pos_embed patch_embed downsample",
        "one_dim_param_no_weight_decay": True,
    }
    after = step(model, config, gradient=0.0)
    assert len(after) == len(decayed) > 100
    shrunk = START * (1 - 0.1 * 0.05)
    for name, values in after.items():
        np.testing.assert_allclose(values, shrunk if decayed[name] else START, rtol=1e-6, err_msg=name)


def test_adamw_decays_by_default_and_every_parameter():
    for values in step(two_branches(), {"name": "AdamW", "lr": RATE}, gradient=0.0).values():
        np.testing.assert_allclose(values, START * (1 - 0.1 * 0.01), rtol=1e-6)


@pytest.mark.parametrize(("decay", "gradient"), [
    ({"regularizer": {"name": "L2", "factor": 0.5}}, 0.5 * START),
    ({"regularizer": {"name": "L2Decay", "factor": 0.5}}, 0.5 * START),
    ({"weight_decay": 0.5}, 0.5 * START),
    ({"regularizer": {"name": "L1", "factor": 0.5}}, 0.5),
    ({"regularizer": None}, 0.0),
    ({}, 0.0),
])  # fmt: skip
def test_decay_adds_to_the_gradient(decay, gradient):
    config = {"name": "Momentum", "momentum": 0.0, "lr": RATE, **decay}
    for values in step(two_branches(), config, gradient=0.0).values():
        np.testing.assert_allclose(values, START - 0.1 * gradient, rtol=1e-6)


def test_clip_norm_looks_at_each_parameter_and_the_global_one_at_all():
    sizes = {"Student.fc.weight": 6, "Student.fc.bias": 3, "Teacher.fc.weight": 6}
    plain = {"name": "Momentum", "momentum": 0.0, "lr": RATE}
    each = step(two_branches(), {**plain, "clip_norm": 1.0}, gradient=4.0)
    together = step(two_branches(), {**plain, "clip_norm_global": 1.0}, gradient=4.0)
    for name, size in sizes.items():
        np.testing.assert_allclose(each[name], START - 0.1 / math.sqrt(size), rtol=1e-5)
        np.testing.assert_allclose(together[name], START - 0.1 / math.sqrt(15), rtol=1e-5)


def test_a_model_without_trainable_parameters_is_refused():
    model = two_branches()
    for parameter in model.parameters():
        parameter.stop_gradient = True
    with raises_code(ModelError, "nothing_to_train", "freeze_params"):
        build_optimizer({"name": "Adam", "lr": RATE}, 10, 7, model)


def test_the_schedule_is_returned_and_drives_the_optimizer():
    config = {"name": "Adam", "lr": {"name": "Cosine", "learning_rate": 0.1}}
    optimizer, scheduler = build_optimizer(config, 10, 7, two_branches())
    for _ in range(35):
        scheduler.step()
    assert optimizer.get_lr() == scheduler() == pytest.approx(0.05)
    _, constant = build_optimizer({"name": "Adam", "lr": RATE}, 10, 7, two_branches())
    assert constant == 0.1


@pytest.mark.parametrize(("config", "code", "found"), [
    ({"lr": RATE}, "missing_key", "`name`"),
    ({"name": "Adam"}, "missing_key", "`lr`"),
    ({"name": "Adam", "lr": 0.1}, "missing_key", "`lr`"),
    ({"name": "Adam", "lr": RATE, "group_lr": True}, "unsupported_key", "lr_mult"),
    ({"name": "Adam", "lr": RATE, "lr_mult": 0.1}, "bad_value", "Optimizer.lr_mult"),
    ({"name": "Adam", "lr": RATE, "lr_mult": ["*"]}, "bad_value", "['*']"),
    ({"name": "Adam", "lr": RATE, "lr_mult": {"*": "fast"}}, "bad_value", "'fast'"),
    ({"name": "Adam", "lr": RATE, "lr_mult": {"*": -1}}, "bad_value", "-1"),
    ({"name": "Adam", "lr": RATE, "lr_mult": {"*": True}}, "bad_value", "True"),
    ({"name": "Adam", "lr": RATE, "lr_mult": {"*": math.inf}}, "bad_value", "inf"),
    ({"name": "Adam", "lr": RATE, "lr_mult": {"a": 1}}, "no_match", "'a'"),
    ({"name": "Adam", "lr": RATE, "regularizer": {"name": "L3"}}, "bad_value", "'L3'"),
    ({"name": "Adam", "lr": RATE, "regularizer": {"name": "L2"}, "weight_decay": 0.1},
     "conflicting_keys", "weight_decay"),
    ({"name": "Adam", "lr": RATE, "clip_norm": 1, "clip_norm_global": 1}, "conflicting_keys", "clip_norm_global"),
    ({"name": "AdamW", "lr": RATE, "regularizer": {"name": "L1", "factor": 0.1}}, "conflicting_keys", "L1"),
    ({"name": "Adam", "lr": RATE, "beta1": 1.5}, "bad_value", "Optimizer: Adam"),
    ({"name": "Momentum", "lr": RATE}, "missing_key", "momentum"),
    ({"name": "Adam", "lr": RATE, "beta3": 0.9}, "unknown_key", "beta3"),
])  # fmt: skip
def test_what_cannot_work_is_refused(config, code, found):
    with raises_code(ConfigError, code, found):
        build_optimizer(config, 10, 7, two_branches())


@pytest.mark.parametrize("name", ["Momentum", "Adam", "AdamW", "RMSProp", "Adadelta"])
def test_every_optimizer_follows_the_factors(name):
    """The step of each is proportional to the rate, which decoupled decay follows too."""
    config = {"name": name, "lr": RATE, **({"momentum": 0.9} if name == "Momentum" else {})}
    whole = step(two_branches(), config, 0.5)
    after = step(two_branches(), {**config, "lr_mult": {"*": 0.0, "Student.*": 0.25, "*.bias": 1.0}}, 0.5)
    for parameter, factor in (("Teacher.fc.weight", 0), ("Student.fc.weight", 0.25), ("Student.fc.bias", 1)):
        expected = START + factor * (whole[parameter] - START)
        assert after[parameter] == pytest.approx(expected, rel=1e-5), parameter


def test_a_checkouts_classes_are_called_as_paddleocr_calls_them(monkeypatch):
    class HostSGD:
        def __init__(
            self, learning_rate: Any, weight_decay: Any = None, grad_clip: Any = None, **args: Any
        ) -> None:
            self.options = {
                "learning_rate": learning_rate,
                "weight_decay": weight_decay,
                "grad_clip": grad_clip,
            }

        def __call__(self, model: paddle.nn.Layer) -> paddle.optimizer.SGD:
            return paddle.optimizer.SGD(parameters=model.parameters(), **self.options)

    class HostExponential:
        def __init__(self, learning_rate: float, step_each_epoch: int, gamma: float, **kwargs: Any) -> None:
            self.options = (learning_rate, gamma)

        def __call__(self) -> paddle.optimizer.lr.LRScheduler:
            return paddle.optimizer.lr.ExponentialDecay(*self.options)

    monkeypatch.setattr(OPTIMIZERS, "_find_foreign", {"HostSGD": HostSGD}.get)
    monkeypatch.setattr(SCHEDULES, "_find_foreign", {"HostExponential": HostExponential}.get)
    config = {"name": "HostSGD", "lr": {"name": "HostExponential", "learning_rate": 0.1, "gamma": 0.5}}
    optimizer, scheduler = build_optimizer(config, 10, 7, two_branches())
    assert isinstance(optimizer, paddle.optimizer.SGD)
    scheduler.step()
    assert optimizer.get_lr() == pytest.approx(0.05)
