"""The average of the weights: its numbers, who sees it, and what checkpoints hold of it."""

import json
import pickle
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from paddle import nn
from tiny_runs import StopAfter

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import other_weights
from ppocr_ext.checkpoint.weights import full_precision
from ppocr_ext.cli.main import main
from ppocr_ext.errors import WeightsError
from ppocr_ext.evaluation.evaluate import evaluate
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.events import Hook, Position, StepDone
from ppocr_ext.loop.hooks.ema import Ema
from ppocr_ext.loop.session import train
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.run.run import Run


def network():
    paddle.seed(3)
    layer = DistillationModel.__new__(DistillationModel)
    nn.Layer.__init__(layer)
    layer.frozen = frozenset({"Teacher"})
    layer.Student, layer.Teacher = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1D(4)), nn.Linear(2, 2)
    layer.fixed = nn.Linear(2, 2)
    for parameter in layer.fixed.parameters():
        parameter.stop_gradient = True
    return layer


def started(decay, layer, states=None):
    hook = Ema(decay)
    training = SimpleNamespace(full_precision=full_precision, hook_states=states or {}, start=Position())
    hook.on_start(SimpleNamespace(network=layer), training)
    return hook


def arrays(layer):
    return {name: tensor.numpy().copy() for name, tensor in layer.state_dict().items()}


def take_step(hook, layer, rng, applied=True):
    for tensor in layer.state_dict().values():
        tensor.set_value(tensor + paddle.to_tensor(rng.normal(size=tensor.shape), dtype="float32"))
    hook.on_step(StepDone(Position(), {}, 0.1, 4, applied=applied))


@pytest.mark.parametrize("decay", [0.5, 0.999])
def test_the_average_is_that_of_the_formula(decay):
    layer, rng = network(), np.random.default_rng(0)
    hook = started(decay, layer)
    names = [name for name in layer.state_dict() if name.startswith("Student.")]
    assert len(names) == 6  # two of a linear layer, four of a BatchNorm
    expected = {name: arrays(layer)[name].astype("float64") for name in names}
    for count in range(20):
        take_step(hook, layer, rng)
        d = min(decay, (1 + count) / (10 + count))
        expected = {name: d * expected[name] + (1 - d) * arrays(layer)[name] for name in names}
    take_step(hook, layer, rng, applied=False)
    hook.on_step(StepDone(Position(), {}, 0.1, 4, {"grad_norm": float("inf")}))  # it overflowed
    average = hook.saved_weights("best_accuracy")
    assert set(average) == set(names) and hook.saved_weights("latest") == {}
    for name in names:
        np.testing.assert_allclose(average[name].numpy(), expected[name], rtol=1e-5, atol=1e-5)


def test_weights_in_16_bits_are_averaged_by_their_masters():
    layer = nn.Linear(2, 2).to(dtype="float16")
    tensors = layer.state_dict()
    hook = Ema(0.5)
    masters = {tensor.name: paddle.full(tensor.shape, 1.0) for tensor in tensors.values()}
    exact = partial(full_precision, optimizer=SimpleNamespace(_master_weights=masters))
    training = SimpleNamespace(full_precision=exact, hook_states={}, start=Position())
    hook.on_start(SimpleNamespace(network=layer), training)
    for tensor in tensors.values():
        masters[tensor.name] = paddle.full(tensor.shape, 1.0001)  # 1 in float16
        tensor.set_value(paddle.ones(tensor.shape, "float16"))
    hook.on_step(StepDone(Position(), {}, 0.1, 4))
    for value in hook.saved_weights("best_accuracy").values():
        np.testing.assert_allclose(value.numpy(), 1.00009, rtol=1e-7)
    before = arrays(layer)
    hook.on_eval_start()
    assert all((value == 1).all() and value.dtype == np.float16 for value in arrays(layer).values())
    hook.on_eval_end()
    for name, value in arrays(layer).items():
        np.testing.assert_array_equal(value, before[name])


class SeeWeights(Hook):
    """Keep the weights that the last evaluation has seen."""

    def on_start(self, run, training):
        self.network = run.network

    def wrap_metric(self, metric):
        def call(*args, **kwargs):
            self.seen = arrays(self.network)
            return metric(*args, **kwargs)

        call.get_metric, call.main_indicator = metric.get_metric, metric.main_indicator
        return call

    def measure_eval(self):
        self.measured = arrays(self.network)
        return {}

    def on_eval(self, result):
        self.told = arrays(self.network)


def content(prefix):
    """The numbers of a checkpoint: weights, optimizer, average."""
    checkpoint = Checkpoint(prefix)
    optimizer = [np.asarray(v) for v in checkpoint.optimizer_state().values() if not isinstance(v, dict)]
    return [*checkpoint.weights().values(), *optimizer, *other_weights(checkpoint).values()]


def assert_equal(ones, others):
    assert len(ones) == len(others)
    for one, other in zip(ones, others, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.e2e
def test_a_run_with_an_average(tiny, tmp_path, capsys):
    """Its training is that without one; a resume is exact; its best checkpoint evaluates to what was measured."""

    def config(name, **values):
        folder = {
            "Global.save_model_dir": str(tmp_path / name),
            "Global.eval_batch_step": [0, 4],
            "Global.dry_step": False,
        }
        return tiny("student", **folder, **values)

    train(config("plain"))
    evaluation = SeeWeights()
    train(config("whole", **{"Global.ema": 0.9}), hooks=[evaluation])
    plain, whole = Checkpoint(tmp_path / "plain" / "latest"), tmp_path / "whole"
    raw = Checkpoint(whole / "latest").weights()
    assert_equal(list(plain.weights().values()), list(raw.values()))

    broken = config("broken", **{"Global.ema": 0.9})
    train(broken, hooks=[StopAfter(5)])
    for name in ("latest", "best_accuracy"):  # of steps 5 and 4; the end of a run replaces both
        folder = shutil.copytree(tmp_path / "broken", tmp_path / name)
        values = {"Global.save_model_dir": str(folder), "Global.checkpoints": str(folder / name)}
        train(broken.with_values(values))
        assert_equal(content(whole / "latest"), content(folder / "latest"))

    best = whole / "best_accuracy"
    measured = json.loads((whole / "run.json").read_text())["best"]
    assert measured["norm_edit_dis"] > 0
    found = evaluate(Run.build(config("whole", **{"Global.checkpoints": str(best)}), "eval")).metrics
    assert found["norm_edit_dis"] == pytest.approx(measured["norm_edit_dis"], abs=1e-12)
    state = pickle.loads(states_file(best).read_bytes())
    held = Checkpoint(best).weights()
    for name, value in state["hooks"]["Ema"]["average"].items():
        np.testing.assert_array_equal(held[name], value)
        for seen in (evaluation.seen, evaluation.measured, evaluation.told):  # NRTR reads in the last two
            np.testing.assert_array_equal(seen[name], value)
        assert (held[name] != state["raw_weights"][name]).any() or not value.any()

    assert main(["checkpoint", "other", str(whole / "latest"), "-o", str(tmp_path / "averaged")]) == 0
    average = pickle.loads(states_file(whole / "latest").read_bytes())["hooks"]["Ema"]["average"]
    written = Checkpoint(tmp_path / "averaged").weights()
    for name, value in raw.items():
        np.testing.assert_array_equal(written[name], average.get(name, value))
    with raises_code(WeightsError, "weights_alone", "Global.pretrained_model"):
        train(config("more", **{"Global.checkpoints": str(tmp_path / "averaged")}))
    with raises_code(WeightsError, "no_average"):
        other_weights(plain)


def test_an_average_that_is_not_finite_is_not_saved(tiny, tmp_path):
    class Spoil(Hook):
        def on_step(self, step):
            if step.position.global_step == 5:
                next(iter(ema._average.values()))[0] = float("nan")

    def start(self, run, training, real=Ema.on_start):
        nonlocal ema
        ema = self
        real(self, run, training)

    ema = None
    config = tiny("student", **{"Global.ema": 0.9})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ema, "on_start", start)
        outcome = train(config, hooks=[Spoil(), StopAfter(5)])  # without another evaluation
    assert outcome.status == "nonfinite" and "backbone" in outcome.reason
    latest = Checkpoint(tmp_path / "run" / "latest")
    assert latest.train_state().position.global_step == 3
    assert all(np.isfinite(value).all() for value in other_weights(latest).values())


def states_file(prefix):
    return prefix.with_name(f"{prefix.name}.states")


@pytest.mark.parametrize("changes", [{"Global.start_ema": True}, {"Architecture.algorithm": "SRN"}])
def test_two_averages_are_an_error(tiny, changes):
    with raises_code(InvalidConfigError, "conflicting_keys", "Global.ema"):
        train(tiny("student", **{"Global.ema": 0.99}, **changes))
