"""Several batches for one step of the optimizer: the weights of the joined batch, whole groups, stops, bad values."""

import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from faults import Plant, nan_loss
from tiny_runs import ONE_BRANCH, metrics, shipped

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.errors import WeightsError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train
from ppocr_ext.loop.step import Group, OptimizerProxy

SCHEDULE = {"name": "Cosine", "learning_rate": 0.05, "warmup_epoch": 1}
MOMENTUM = {"name": "Momentum", "momentum": 0.9, "lr": SCHEDULE}


class Steps(Hook):
    """Keep outputs, weights, rate and ``is_whole`` of each step; raise a signal in one of them."""

    def __init__(self, stop_after=None):
        self.stop_after, self.weights, self.rates, self.whole = stop_after, {}, {}, {}
        self.outputs = []

    def on_start(self, run, training):
        self.network, self.unreached = run.network, run.training.unreached

    def measure_outputs(self, predictions, batch, losses):
        self.outputs.append(predictions)
        return {}

    def on_step(self, step):
        number = step.position.global_step
        parameters = [p for p in self.network.parameters() if not p.stop_gradient]
        self.weights[number] = [p.numpy().copy() for p in parameters]
        self.rates[number], self.whole[number] = step.lr, step.is_whole
        if number == self.stop_after:
            signal.raise_signal(signal.SIGINT)


class Copies(Hook):
    """Keep the best checkpoint that stands at step 6."""

    def __init__(self, prefix):
        self.prefix = prefix

    def on_save(self, prefix, position):
        if prefix.name == self.prefix.name and position.global_step == 6:
            for file in prefix.parent.glob(f"{prefix.name}.*"):
                shutil.copy(file, self.prefix.parent)


@pytest.fixture
def without_batch_norm(tiny, tmp_path, monkeypatch):
    """A CTC network without BatchNorm, in batches of that size."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def build(name, batch, **values):
        return tiny(
            "student",
            **{
                "Global.save_model_dir": str(tmp_path / name),
                **ONE_BRANCH,
                "Global.dry_step": False,
                "Global.epoch_num": 3,
                "Global.eval_batch_step": [0, 100],
                "Optimizer": {**MOMENTUM, "clip_norm_global": 1.0},
                "Train.loader.batch_size_per_card": batch,
                "Train.loader.drop_last": False,
                **values,
            },
        )

    return build


def assert_close(ones, others, tolerance):
    assert len(ones) == len(others) > 0
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def test_a_parameter_that_sometimes_gets_no_gradient_is_treated_as_by_paddleocr():
    """Its gradient is 0 from its first one on, so it decays and its moments go on; before, it stays as it is."""

    def weights_after(wrap):
        paddle.seed(0)
        always, sometimes = paddle.nn.Linear(2, 1), paddle.nn.Linear(2, 1)
        parameters = [*always.parameters(), *sometimes.parameters()]
        optimizer = wrap(paddle.optimizer.AdamW(0.1, parameters=parameters, weight_decay=0.1), parameters)
        for used in ([], [sometimes], [], [sometimes], []):
            sum(layer(paddle.ones([1, 2])) for layer in [always, *used]).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        return [parameter.numpy() for parameter in parameters], parameters

    def of_a_run(optimizer, parameters):
        named = dict(enumerate(parameters))
        groups = [Group(1, named)]

        def allows():
            groups.append(Group(1, named, list(groups[-1].unreached)))  # as a resume from a checkpoint does
            return groups[-1].fill() is None

        return OptimizerProxy(optimizer, lambda lr: None, allows)

    ours, parameters = weights_after(of_a_run)
    assert_close(ours, weights_after(lambda optimizer, parameters: optimizer)[0], 0)
    assert all(parameter.grad is None for parameter in parameters)


class Gradient:
    """A parameter's gradient in float64."""

    def __init__(self, value):
        self.value = value

    def scale_(self, factor):
        self.value = self.value * factor


def gradient_of_group(sizes, usual, monkeypatch):
    """Return a group's gradient and that of the joined batch; ``sizes``: samples by process and batch.

    The loss is the mean over the samples of ``(w - x)²``. DataParallel averages over the processes after each batch.
    """
    draw = np.random.default_rng(sum(map(sum, sizes)))
    samples = [[draw.normal(size=(count, 3)) for count in process] for process in sizes]
    weight = draw.normal(size=3)
    team = SimpleNamespace(size=len(sizes), total=lambda own: sum(map(sum, sizes)))
    monkeypatch.setattr("ppocr_ext.loop.step.team", lambda: team)
    parameters = {"w": SimpleNamespace(grad=Gradient(np.zeros(3)))}
    groups = [Group(len(sizes[0]) + 1, parameters, usual=usual) for _ in sizes]
    for index in range(len(sizes[0])):
        of_batch = []
        for group, process in zip(groups, samples, strict=True):
            group.begin_batch(ends_epoch=index == len(process) - 1)
            gradient = 2 * (weight - process[index]).mean(axis=0)
            of_batch.append(gradient * group.weight(len(process[index])))
        parameters["w"].grad.value += np.mean(of_batch, axis=0)
    summed = np.linalg.norm(parameters["w"].grad.value)
    factors = {group.mean_factor() for group in groups}
    assert len(factors) == 1  # or the weights of the processes would part
    groups[0].scale(*factors)
    scaled = parameters["w"].grad.value
    assert summed * factors.pop() == pytest.approx(np.linalg.norm(scaled))  # the ``grad_norm`` of the log
    joined = np.concatenate([batch for process in samples for batch in process])
    return scaled, 2 * (weight - joined).mean(axis=0)


def test_groups_of_unequal_batches_have_the_gradient_of_the_joined_batch(monkeypatch):
    draw = np.random.default_rng(5)
    cases = [([[64, 64], [3, 64]], 64), ([[3, 64], [64, 64]], 64), ([[7]], 4)]
    for _ in range(100):
        processes, batches = draw.integers(1, 4), draw.integers(1, 6)
        cases.append((draw.integers(1, 65, size=(processes, batches)).tolist(), int(draw.integers(1, 65))))
    for sizes, usual in cases:
        found, expected = gradient_of_group(sizes, usual, monkeypatch)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=str(sizes))


@pytest.mark.e2e
def test_a_group_is_a_step_of_the_joined_batch(without_batch_norm):
    """24 samples: batches of 7, 7, 7, 3 in groups of two are batches of 14 and 10; of 9, 9, 6 they are 18 and 6."""
    for small, joined, whole in ((7, 14, [False, True, False, True]), (9, 18, [False, True, True])):
        grouped, plain = Steps(), Steps()
        train(without_batch_norm(f"grouped{small}", small, **{"Global.accumulate": 2}), hooks=[grouped])
        train(without_batch_norm(f"plain{small}", joined), hooks=[plain])
        assert list(grouped.whole.values()) == whole * 3
        ends = [number for number, is_whole in grouped.whole.items() if is_whole]
        assert [grouped.rates[end] for end in ends] == pytest.approx(list(plain.rates.values()), rel=1e-12)
        assert plain.rates[2] > plain.rates[1]  # warm-up is in steps of the optimizer too
        first = plain.weights[1]
        for end, step in zip(ends, plain.weights, strict=True):
            assert_close(grouped.weights[end], plain.weights[step], 1e-6)
        assert max(np.abs(a - b).max() for a, b in zip(first, plain.weights[6], strict=True)) > 1e-3


@pytest.mark.e2e
def test_a_stop_inside_a_group_waits_for_its_end_and_the_run_is_resumed_exactly(tiny, tmp_path):
    def config(name, **values):
        folder = {"Global.save_model_dir": str(tmp_path / name), "Global.dry_step": False}
        settings = {"Global.accumulate": 2, "Global.ema": 0.9, "Global.eval_batch_step": [0, 4]}
        return tiny(
            "student", **{**folder, **settings, **values}
        )  # two epochs of a group of two and one of one

    train(config("whole"))
    outcome = train(config("broken"), hooks=[Steps(stop_after=4)])
    assert (outcome.status, outcome.position.global_step) == ("stopped", 5)
    latest = tmp_path / "broken" / "latest"
    # an evaluation inside a group: the gradient so far is not stored, so its checkpoint is at the group's start
    assert Checkpoint(latest.with_name("best_accuracy")).train_state().position.global_step == 3
    goes_on = {"Global.checkpoints": str(latest)}
    with raises_code(WeightsError, "optimizer_mismatch", "Global.accumulate"):
        train(config("broken", **goes_on, **{"Global.accumulate": 3}))
    train(config("broken", **goes_on), hooks=[resumed := Steps()])
    assert resumed.unreached == []  # every parameter has had a gradient
    ours, theirs = Checkpoint(latest), Checkpoint(tmp_path / "whole" / "latest")
    for name, value in theirs.weights().items():
        np.testing.assert_array_equal(ours.weights()[name], value, err_msg=name)
    state = theirs.train_state()
    assert state.hooks["Ema"]["updates"] == theirs.optimizer_state()["LR_Scheduler"]["last_epoch"] == 4
    assert [line["step"] for line in metrics(tmp_path / "whole") if "grad_norm" in line] == [2, 3, 5, 6]


@pytest.mark.e2e
@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("loss", ["CTCLoss", "CenterLoss"])
def test_a_checkpoint_inside_a_group_is_resumed_bit_for_bit(tiny, tmp_path, ema, loss):
    """Its batches have changed BatchNorm and centers, and a resumed run reads them again."""

    def config(name, **values):
        settings = {"Global.accumulate": 3, "Global.ema": ema, "Global.eval_batch_step": [0, 4]}
        folder = {"Global.save_model_dir": str(tmp_path / name), "Global.dry_step": False}
        if loss == "CenterLoss":
            entries = shipped("student").thaw()["Loss"]["loss_config_list"]
            settings["Loss.loss_config_list"] = [*entries, {"CenterLoss": {"weight": 0.1, "update": "ema"}}]
        return tiny("student", **{**folder, **settings, "Train.loader.batch_size_per_card": 4, **values})

    best = tmp_path / "resumed" / "best_accuracy"
    best.parent.mkdir()
    train(config("whole"), hooks=[Copies(best)])  # evaluated after step 8, the second batch of a group
    state = Checkpoint(best).train_state()
    assert state.position.global_step == 6 and state.before_group
    moved = [
        np.abs(state.before_group[name] - Checkpoint(best).weights()[name]).max()
        for name in state.before_group
    ]
    assert max(moved) > 0
    train(config("resumed", **{"Global.checkpoints": str(best)}))
    ours, theirs = (Checkpoint(tmp_path / name / "latest") for name in ("resumed", "whole"))
    for name, value in theirs.weights().items():
        np.testing.assert_array_equal(ours.weights()[name], value, err_msg=name)
    for name, value in theirs.train_state().loss.items():
        np.testing.assert_array_equal(ours.train_state().loss[name], value, err_msg=name)
    assert not theirs.train_state().before_group  # it is written at the end of a group


@pytest.mark.e2e
@pytest.mark.parametrize("bad", [1, 2])
def test_a_bad_value_skips_its_group_and_no_other(tiny, bad):
    steps = Steps()
    settings = {"Global.accumulate": 2, "Global.nonfinite": "skip", "Global.nonfinite_limit": 1}
    outcome = train(tiny("student", **settings), hooks=[Plant(nan_loss, bad), steps])
    assert outcome.status == "finished"
    assert_close(steps.weights[2], steps.weights[1], 0)
    for ours in steps.weights.values():
        assert all(np.isfinite(value).all() for value in ours)
    moved = [np.abs(a - b).max() for a, b in zip(steps.weights[3], steps.weights[2], strict=True)]
    assert max(moved) > 0
    assert [bool(outputs) for outputs in steps.outputs] == [False] * 6  # let go of after each step
