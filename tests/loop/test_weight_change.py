"""A run that trains nothing is named with the key that causes it; healthy ones are not, nor those in their warm-up."""

import logging
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from tiny_runs import StopAfter

from ppocr_ext.config import Config
from ppocr_ext.loop.events import Position, StepDone
from ppocr_ext.loop.hooks.weight_checks import LIMIT, STEPS, WeightChange, relative_change
from ppocr_ext.loop.session import train

CONST = {"name": "Const", "learning_rate": 0.001}
MOMENTUM = {"name": "Momentum", "momentum": 0.9, "lr": CONST, "clip_norm_global": 1.0}


@pytest.fixture
def notices():
    """Return what the hook has said; a run takes the log for itself, so that pytest does not see it."""
    records, handler, logger = [], logging.Handler(logging.WARNING), logging.getLogger("ppocr_ext")
    handler.emit = records.append
    logger.addHandler(handler)
    yield lambda: [record.getMessage() for record in records if record.module == "weight_checks"]
    logger.removeHandler(handler)


@pytest.fixture
def short(tiny):
    """A config of 24 steps at a constant rate, with AdamW, weight decay and a clip."""

    def build(**values):
        steps = {"Global.epoch_num": 1, "Global.eval_batch_step": [0, 100], "Global.dry_step": False}
        return tiny(
            "student", **{"Train.loader.batch_size_per_card": 1, "Optimizer.lr": CONST, **steps, **values}
        )

    return build


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"Optimizer.lr.learning_rate": 1e-12}, "Optimizer.lr."),
        ({"Optimizer.lr_mult": {"*": 0.0}}, "Optimizer.lr_mult"),
        ({"Optimizer.epsilon": 1e8}, "Optimizer.epsilon"),  # weight decay goes on
        (
            {"Optimizer.clip_norm_global": 1e-9},
            "Optimizer.clip_norm_global",
        ),  # it nearly scales the epsilon of Adam
        ({"Optimizer": {**MOMENTUM, "clip_norm_global": 1e-9}}, "Optimizer.clip_norm_global"),
        ({"Global.accumulate": 25}, "Global.accumulate"),
    ],
)
def test_a_run_that_trains_nothing_is_named_with_its_cause(short, notices, values, key):
    assert train(short(**values)).status == "finished"
    [text] = notices()
    assert key in text and len(text) < 160


@pytest.mark.e2e
@pytest.mark.parametrize(
    "values",
    [
        {"Optimizer.lr.learning_rate": 1e-5},
        {"Optimizer.lr_mult": {"*": 0.1, "backbone.*": 0.0}},
        {"Global.accumulate": 24},
    ],
)
def test_a_run_that_trains_is_not(short, notices, values):
    train(short(**values))
    assert notices() == []


@pytest.mark.e2e
def test_a_resumed_run_is_not_checked(short, notices, tmp_path):
    """Its rates may be those of the end of a schedule."""
    still = {"Optimizer.lr.learning_rate": 1e-12, "Global.epoch_num": 2}
    train(short(**still), hooks=[StopAfter(5)])
    train(short(**still, **{"Global.checkpoints": str(tmp_path / "run" / "latest")}))
    assert notices() == []


def changes_of(rates, move=0.0, start=0):
    """Return whether the hook warns in steps with these rates, of which each moves a weight by ``move`` times it."""
    weight = paddle.to_tensor([1.0, 2.0], stop_gradient=False)
    weight.optimize_attr = {"learning_rate": 1.0}
    run = SimpleNamespace(
        context=SimpleNamespace(config=Config({"Optimizer": {"name": "SGD"}, "Global": {}})),
        network=SimpleNamespace(parameters=lambda: [weight]),
    )
    at, hook = Position(global_step=start, steps_per_epoch=10), WeightChange()
    hook.on_start(run, SimpleNamespace(optimizer=None, start=at))
    for rate in rates:
        with paddle.no_grad():
            weight[0] += move * rate
        hook.on_step(StepDone(at, {}, rate, 1, {"grad_norm": 1.0}))


def test_the_steps_after_warm_up_are_measured(notices):
    rising = [1e-5 * step for step in range(1, 500)]
    changes_of(rising)
    changes_of([*rising, *[5e-3] * STEPS])  # the first of them is the start
    changes_of([*rising, *[5e-3] * (STEPS + 1)], move=1.0)
    changes_of([1e-3] * 100, start=1)
    assert notices() == []
    changes_of([*rising, *[5e-3] * (STEPS + 1), *[5e-3] * 100])
    assert len(notices()) == 1


def test_a_scaled_tensor_has_not_changed():
    before = np.random.default_rng(0).normal(size=(3, 8))
    before[2] = 0  # a bias
    assert relative_change(before, before * [[0.9], [1.0], [1.0]]) < 1e-15
    after = before.copy()
    after[2] += 1e-3
    assert relative_change(before, after) == pytest.approx(1e-3 * np.sqrt(8) / np.linalg.norm(before))
    assert relative_change(before, before + np.float64(1e-9)) < LIMIT
