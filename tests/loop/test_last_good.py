"""Going back to the last good state; whole rollbacks are in test_nonfinite_runs.py."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint.checkpoints import Checkpoint, Position, TrainState, write_checkpoint
from ppocr_ext.checkpoint.model_state import parameter_names
from ppocr_ext.checkpoint.optimizer_state import MASTERS, drop_moments, restore_optimizer
from ppocr_ext.errors import WeightsError
from ppocr_ext.loop import last_good
from ppocr_ext.loop.accumulation import Group
from ppocr_ext.loop.last_good import LastGood
from ppocr_ext.run.amp import Amp


@pytest.mark.parametrize("seen_here", [True, False])
def test_processes_that_see_different_checkpoints_do_not_go_back(tmp_path, monkeypatch, seen_here):
    state = LastGood(SimpleNamespace(folder=tmp_path), dict, Group(1, {}))
    if seen_here:
        (tmp_path / "latest.states").write_bytes(b"")
    other = int(not seen_here)
    answers = iter([other, 1 - other])  # of the other process, to the two questions
    monkeypatch.setattr(
        last_good, "team", lambda: SimpleNamespace(highest=lambda mine: max(mine, next(answers)))
    )
    with raises_code(WeightsError, "missing_file", "latest.states", "Global.nonfinite: skip"):
        state.restore()


class TwoLayers:
    """A training run without a host: one layer gets a gradient in each step, the other, which comes first, in some."""

    def __init__(self, folder):
        paddle.seed(0)
        self.folder, self.loss, self.amp, self.schedule, self.start = folder, None, Amp(), 0.1, Position()
        self.late, self.always = paddle.nn.Linear(2, 1), paddle.nn.Linear(2, 1)
        self.network = paddle.nn.LayerList([self.late, self.always])
        parameters = self.network.parameters()
        self.optimizer = paddle.optimizer.AdamW(self.schedule, parameters=parameters, weight_decay=0.1)
        self.group = Group(1, dict(self.network.named_parameters()))
        self.last_good = LastGood(self, dict, self.group)

    def step(self, *layers, factor=1.0):
        sum(layer(paddle.ones([1, 2])).square() for layer in layers).sum().scale(factor).backward()
        self.group.fill()
        self.optimizer.step()
        self.optimizer.clear_grad(set_to_zero=False)

    def write(self):
        names = parameter_names(self.network)
        state = TrainState(Position(0, 1, 1), parameter_names=names, unreached=sorted(self.group.unreached))
        write_checkpoint(self.folder / "latest", self.network.state_dict(), self.optimizer, state)

    def resumed(self):
        other, checkpoint = TwoLayers(self.folder), Checkpoint(self.folder / "latest")
        other.network.set_state_dict({n: paddle.to_tensor(v) for n, v in checkpoint.weights().items()})
        state, names = checkpoint.train_state(), parameter_names(other.network)
        restore_optimizer(other.optimizer, checkpoint, names, state.parameter_names)
        other.group.restore(state.unreached)
        return other

    def values(self):
        """Weights by their names, and moments and powers of beta by the parameter's name."""
        moments = {
            f"{name} {kind}": by_parameter[parameter.name].numpy()
            for kind, by_parameter in self.optimizer._accumulators.items()
            for name, parameter in self.network.named_parameters()
            if parameter.name in by_parameter
        }
        return moments | {name: value.numpy() for name, value in self.network.state_dict().items()}


def assert_same(one, other):
    ours, theirs = one.values(), other.values()
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    assert one.group.unreached == other.group.unreached


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_first_gradient_that_is_undone_leaves_nothing(tmp_path, has_checkpoint):
    run, unbroken = TwoLayers(tmp_path / "run"), TwoLayers(tmp_path / "unbroken")
    for each in (run, unbroken):
        each.folder.mkdir()
        each.last_good.keep(0)
        each.step(each.always)
    run.write() if has_checkpoint else run.last_good.keep(1)
    for _ in range(2):  # the second time the moments have been created before
        run.step(run.late, run.always, factor=3.0)
        run.step(run.late, run.always, factor=3.0)
        assert run.last_good.restore()[0] == 1
        assert_same(run, unbroken)
    for each in (run, unbroken):
        each.step(each.always)
        each.step(each.late, each.always)
    assert_same(run, unbroken)
    run.write()
    assert_same(run.resumed(), run)


def test_a_first_gradient_may_come_in_the_first_step_after_a_resume(tmp_path):
    run = TwoLayers(tmp_path)
    run.step(run.always)
    run.write()
    resumed = run.resumed()
    for each in (run, resumed):
        each.step(each.late, each.always)
    assert_same(resumed, run)


def test_master_weights_of_an_undone_first_gradient_are_dropped():
    """A CPU has no step for 16 bits, so the masters and moments are created as a step does."""
    layers = paddle.nn.Linear(2, 1), paddle.nn.Linear(2, 1)
    parameters = [parameter for layer in layers for parameter in layer.bfloat16().parameters()]
    optimizer = paddle.optimizer.AdamW(0.1, parameters=parameters, multi_precision=True)
    optimizer.helper = paddle.base.layer_helper.LayerHelper("AdamW")  # as Paddle 2.6 does in a step
    block = paddle.static.default_main_program().global_block()
    optimizer._create_accumulators(block, parameters[2:])
    before = optimizer.state_dict()
    kept = before.keys() | dict(before[MASTERS]).keys()
    optimizer._create_accumulators(block, parameters)
    names = optimizer.state_dict().keys()
    for value in optimizer._accumulators["moment1"].values():
        value.set_value(paddle.full_like(value, 0.25))

    drop_moments(optimizer, kept)
    assert optimizer.state_dict().keys() == before.keys()
    assert optimizer._master_weights.keys() == {parameter.name for parameter in parameters[2:]}
    optimizer._create_accumulators(block, parameters)
    assert optimizer.state_dict().keys() == names
    moments = [float(value.max()) for value in optimizer._accumulators["moment1"].values()]
    assert sorted(moments) == [0, 0, 0.25, 0.25]
