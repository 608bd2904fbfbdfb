"""Mixed precision: what is given to Paddle, and what a run does around a scaler. Paddle's own does nothing on a CPU."""

import numpy as np
import paddle
import pytest
from tiny_runs import metrics, single_head

from ppocr_ext.checkpoint import weights
from ppocr_ext.checkpoint.contents import not_finite
from ppocr_ext.checkpoint.files import read_plain_pickle, read_state
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train
from ppocr_ext.run import model_wrappers
from ppocr_ext.run.run import Run


class FakeScaler:
    """Scales by a power of two and, at the steps in ``overflows``, finds infinities, as Paddle's does on a GPU."""

    overflows = ()

    def __init__(self, init_loss_scaling, use_dynamic_loss_scaling):
        self.factor, self.dynamic = init_loss_scaling, use_dynamic_loss_scaling
        self.steps, self._found_inf = 0, False

    def scale(self, loss):
        return loss * self.factor

    def minimize(self, optimizer, scaled):
        assert isinstance(optimizer, paddle.optimizer.Optimizer)
        self.steps += 1
        self._found_inf = self.steps in self.overflows
        if self._found_inf:
            self.factor /= 2
            return
        for parameter in optimizer._parameter_list:
            if parameter.grad is not None:
                parameter.grad.set_value(parameter.grad / self.factor)
        optimizer.minimize(scaled)

    def state_dict(self):
        return {"scale": np.array([self.factor], "float32"), "use_dynamic_loss_scaling": self.dynamic}

    def load_state_dict(self, state):
        self.factor = float(state["scale"][0])


@pytest.fixture
def fake(monkeypatch):
    """AMP as on a device that has it; what `auto_cast` and `decorate` are given is kept."""
    given = {"auto_cast": [], "decorate": [], "scaler": FakeScaler}
    real = paddle.amp.auto_cast

    def auto_cast(**options):
        given["auto_cast"].append(options)
        return real(enable=False)

    def decorate(models, optimizers, **options):
        given["decorate"].append((models, optimizers, options))
        # what comes out of such a model: 16 bits, in tuples too
        models.register_forward_post_hook(lambda layer, inputs, outputs: halved(outputs))
        return models, optimizers

    monkeypatch.setattr(model_wrappers, "works_here", lambda: True)
    monkeypatch.setattr(paddle.amp, "GradScaler", type("Scaler", (FakeScaler,), {}))
    monkeypatch.setattr(paddle.amp, "auto_cast", auto_cast)
    monkeypatch.setattr(paddle.amp, "decorate", decorate)
    return given


def halved(outputs):
    if isinstance(outputs, paddle.Tensor):
        return outputs.astype("bfloat16") if outputs.dtype == paddle.float32 else outputs
    if isinstance(outputs, dict):
        return {name: halved(value) for name, value in outputs.items()}
    return type(outputs)(halved(value) for value in outputs)


class Watch(Hook):
    """The rates that steps had, one weight after each of them, and the types that the loss was given."""

    def __init__(self):
        self.rates, self.weights, self.types = [], [], set()

    def on_start(self, run, training):
        self.parameter = next(p for p in run.network.parameters() if not p.stop_gradient)
        forward = run.training.loss.forward

        def look(predictions, batch):
            self.types |= types_in(predictions)
            return forward(predictions, batch)

        run.training.loss.forward = look

    def on_step(self, step):
        self.rates.append(step.lr)
        self.weights.append(self.parameter.numpy().copy())


def types_in(outputs):
    if isinstance(outputs, paddle.Tensor):
        return {outputs.dtype}
    values = outputs.values() if isinstance(outputs, dict) else outputs
    return set().union(*(types_in(value) for value in values))


SCALED = {"Global.use_amp": True, "Global.amp_level": "O1", "Global.scale_loss": 1024.0}


def test_a_step_that_overflows_changes_no_weights_and_is_counted(tiny, tmp_path, fake, monkeypatch):
    monkeypatch.setattr(paddle.amp.GradScaler, "overflows", (3,))
    plain, watch = Watch(), Watch()
    train(tiny("student", **{"Global.save_model_dir": str(tmp_path / "plain")}), hooks=[plain])
    outcome = train(tiny("student", **SCALED), hooks=[watch])
    np.testing.assert_allclose(watch.weights[1], plain.weights[1], rtol=1e-5, atol=1e-7)  # whatever the scale
    np.testing.assert_array_equal(watch.weights[2], watch.weights[1])
    assert np.abs(watch.weights[3] - watch.weights[2]).max() > 0
    assert watch.rates == plain.rates  # PaddleOCR's schedule goes on as well
    assert outcome.position.global_step == 6
    assert {line["step"] for line in metrics(tmp_path / "run")} == {1, 2, 3, 4, 5, 6}
    assert "overflowed, so it changed no weights" in (tmp_path / "run" / "train.log").read_text()


def test_a_resumed_run_has_the_scale_it_had(tiny, tmp_path, fake, monkeypatch):
    monkeypatch.setattr(paddle.amp.GradScaler, "overflows", (2,))
    adapting = {**SCALED, "Global.use_dynamic_loss_scaling": True}
    train(tiny("student", **adapting, **{"Global.epoch_num": 1}))
    kept = read_plain_pickle(tmp_path / "run" / "latest.states")["scaler"]
    assert kept == {"scale": [512.0], "use_dynamic_loss_scaling": True}
    goes_on = {"Global.checkpoints": str(tmp_path / "run" / "latest")}
    run = Run.build(tiny("student", **adapting, **goes_on), "train")
    assert run.training.amp.scaler.factor == 512.0
    fixed = {**SCALED, "Global.scale_loss": 8.0}
    assert Run.build(tiny("student", **fixed, **goes_on), "train").training.amp.scaler.factor == 8.0


def test_level_type_and_lists_reach_paddle(tiny, fake):
    options = {
        "Global.use_amp": True,
        "Global.amp_level": "O1",
        "Global.amp_dtype": "bfloat16",
        "Global.amp_custom_black_list": ["exp"],
        "Global.amp_custom_white_list": ["softmax"],
        "Global.use_dynamic_loss_scaling": True,
    }
    scaler = model_wrappers.build_amp(tiny("student", **options).settings).scaler
    assert (scaler.dynamic, scaler.factor) == (True, 1.0)
    train(tiny("student", **options, **{"Global.epoch_num": 1}))
    assert fake["decorate"] == []
    expected = {
        "level": "O1",
        "dtype": "bfloat16",
        "custom_black_list": ["exp"],
        "custom_white_list": ["softmax"],
    }
    training, evaluation = fake["auto_cast"][0], fake["auto_cast"][-1]
    assert training == expected
    assert {name: evaluation[name] for name in ("level", "dtype", "custom_black_list")} == {
        name: expected[name] for name in ("level", "dtype", "custom_black_list")
    }


@pytest.mark.parametrize("kind", ["single", "student", "distill"])
def test_level_o2_casts_the_real_model_and_optimizer_and_losses_still_get_float32(tiny, fake, kind):
    watch = Watch()
    options = {"Global.use_amp": True, "Global.epoch_num": 1, "Global.return_feats": True}
    config = single_head(tiny("student", **options)) if kind == "single" else tiny(kind, **options)
    outcome = train(config, hooks=[watch])
    assert outcome.status == "finished"  # evaluations too: the decoder could not read 16 bits
    [(model, optimizer, options)] = fake["decorate"]
    parts = {"Teacher", "Student"} if kind == "distill" else {"backbone", "head"}
    assert parts <= {name for name, _ in model.named_children()}
    assert isinstance(optimizer, paddle.optimizer.Optimizer)
    assert options == {"level": "O2", "master_weight": True, "dtype": "float16"}
    assert watch.types == {paddle.float32}


def test_a_checkpoint_holds_float32_and_the_weights_that_the_optimizer_keeps():
    layer = paddle.nn.Linear(4, 2)
    exact = {name: p.numpy() for name, p in layer.named_parameters()}
    masters = {layer.weight.name: paddle.to_tensor(exact["weight"])}
    layer.to(dtype="bfloat16")  # on every processor

    class Optimizer:
        _master_weights = masters

    half = layer.state_dict()
    full = weights.full_precision(half, Optimizer())
    assert {value.dtype for value in half.values()} == {paddle.bfloat16}
    assert {value.dtype for value in full.values()} == {paddle.float32}
    np.testing.assert_array_equal(full["weight"].numpy(), exact["weight"])
    np.testing.assert_allclose(full["bias"].numpy(), exact["bias"], rtol=1e-2)
    copies = {"bias": np.full(2, 1.001, "float32")}
    for now, stored in ((1.0, 1.001), (2.0, 2.0)):  # before the first step; trained without master weights
        layer.bias.set_value(paddle.full([2], now, "bfloat16"))
        np.testing.assert_allclose(weights.full_precision(half, None, copies)["bias"].numpy(), stored, 1e-6)
    assert not_finite(layer.state_dict()) == []
    layer.bias.set_value(paddle.full([2], np.nan, "bfloat16"))
    assert not_finite(layer.state_dict()) == ["bias"]


def test_a_teacher_that_is_cast_and_saved_goes_on_as_the_one_it_was(tiny, tmp_path, fake, monkeypatch):
    def decorate(models, optimizers, **options):
        for parameter in models.Teacher.parameters():  # as 16 bits would leave it
            if parameter.ndim > 1:
                parameter.set_value(parameter.astype("bfloat16").astype("float32"))
        return models, optimizers

    monkeypatch.setattr(paddle.amp, "decorate", decorate)
    monkeypatch.setattr(weights, "HALF", (paddle.float32,))  # so that what was cast is known by its type
    options = {"Global.use_amp": True, "Global.epoch_num": 1, "Global.save_teacher": True}
    train(tiny("distill", **options))
    goes_on = {**options, "Global.epoch_num": 2, "Global.checkpoints": str(tmp_path / "run" / "latest")}
    assert train(tiny("distill", **goes_on)).status == "finished"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_cpu_trains_in_float32_and_says_so(tiny, tmp_path, dtype):
    train(tiny("student", **{"Global.use_amp": True, "Global.amp_dtype": dtype, "Global.epoch_num": 1}))
    assert (tmp_path / "run" / "train.log").read_text().count("does nothing on a CPU") == 1
    state = read_state(tmp_path / "run" / "latest.pdparams")
    assert {value.dtype for value in state.values()} == {np.dtype("float32")}
