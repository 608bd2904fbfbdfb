"""Keys of PaddleOCR's training that its own loop reads: each has its effect."""

import json
import re

import numpy as np
import paddle
import pytest
from tiny_runs import metrics

from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train
from ppocr_ext.modeling import BaseModel
from ppocr_ext.registry import BACKBONES
from ppocr_ext.run import model_wrappers
from ppocr_ext.run.model_wrappers import compile_model, share_batch_norm


def host_lines(folder):
    """Lines of PaddleOCR's own, as numbers by name."""
    text = (folder / "train.log").read_text()
    return [
        {name: float(value) for name, value in re.findall(r"(\w+): ([0-9.]+)", line)}
        for line in text.splitlines()
        if "ppocr INFO: epoch: [" in line
    ]


def test_an_eval_batch_epoch_beyond_the_run_is_brought_into_it(tiny, tmp_path):
    train(tiny("student", **{"Global.eval_batch_epoch": 5}))
    assert [line["step"] for line in metrics(tmp_path / "run", "eval")] == [6]
    with pytest.raises(ConfigError, match=r"Global\.eval_batch_epoch: found 0\.5"):
        other = {"Global.save_model_dir": str(tmp_path / "other")}
        train(tiny("student", **{"Global.eval_batch_epoch": 0.5}, **other))


def test_log_smooth_window_is_the_number_of_steps_whose_median_is_logged(tiny, tmp_path):
    window = 2
    train(tiny("student", **{"Global.log_smooth_window": window, "Global.epoch_num": 1}))
    losses = [line["loss"] for line in metrics(tmp_path / "run", "train")]
    logged = [line["loss"] for line in host_lines(tmp_path / "run")]
    expected = [np.median(losses[max(0, n - window) : n]) for n in range(1, len(losses) + 1)]
    np.testing.assert_allclose(logged, expected, atol=1e-4)
    assert not any("acc" in line for line in host_lines(tmp_path / "run"))


def test_cal_metric_during_train_logs_the_metric_of_training_batches(tiny, tmp_path):
    train(tiny("distill", **{"Global.cal_metric_during_train": True, "Global.epoch_num": 1}))
    assert all({"acc", "norm_edit_dis"} <= line.keys() for line in host_lines(tmp_path / "run"))


@pytest.fixture
def fresh_profiler(tmp_path, monkeypatch):
    """The host counts steps in a module of its own, for as long as the process lives."""
    from ppocr_ext.host import open_host

    open_host()
    import ppocr.utils.profiler as profiler

    for name, value in {"_profiler_step_id": 0, "_profiler_options": None, "_prof": None}.items():
        monkeypatch.setattr(profiler, name, value)
    monkeypatch.chdir(tmp_path)  # traces go to the current folder


def test_a_profiled_run_ends_after_its_batches_and_can_go_on(tiny, tmp_path, fresh_profiler):
    config = tiny("student", **{"Global.save_model_dir": str(tmp_path / "run")})
    outcome = train(config.with_values({"profiler_options": "batch_range=[1,4]"}))
    assert (outcome.status, outcome.reason) == ("stopped", "the profiler has seen its batches")
    assert (outcome.position.global_step, outcome.position.completed().epoch) == (4, 1)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    again = train(config.with_values({"Global.checkpoints": str(tmp_path / "run" / "latest")}))
    assert (again.status, again.position.global_step) == ("finished", 6)


@pytest.mark.parametrize("options", ["batch_range", "batch_rnge=[1,2]", "batch_range=[5,2]"])
def test_profiler_options_that_cannot_be_are_named(tiny, options):
    with pytest.raises(ConfigError, match="profiler_options"):
        train(tiny("student").with_values({"profiler_options": options}))


def test_batch_norm_is_shared_except_in_a_frozen_model(tiny, monkeypatch):
    from ppocr_ext.modeling import build_model
    from ppocr_ext.run.run import Run

    config = Run.build(tiny("distill"), "train").context.config
    model = build_model(config.at("Architecture").thaw())
    names = list(model.state_dict())

    def shared(layer):
        return sum(isinstance(part, paddle.nn.SyncBatchNorm) for part in layer.sublayers())

    assert shared(share_batch_norm(model)) == 0  # one process
    monkeypatch.setattr(paddle.distributed, "get_world_size", lambda: 2)
    assert shared(share_batch_norm(model)) == 0  # a CPU
    monkeypatch.setattr(paddle, "get_device", lambda: "gpu:0")
    model = share_batch_norm(model)
    assert (shared(model.Student) > 0, shared(model.Teacher)) == (True, 0)
    assert list(model.state_dict()) == names


class NoDropout(Hook):
    """Compiled and plain steps draw other numbers."""

    def on_start(self, run, training):
        for layer in run.network.sublayers():
            if isinstance(layer, paddle.nn.Dropout):
                layer.p = 0.0


@BACKBONES.register()
class Peeks(paddle.nn.Layer):
    """A backbone that looks into its tensors, which have no values in a graph."""

    def __init__(self, in_channels=3):
        super().__init__()
        self.out_channels = 8
        self.conv = paddle.nn.Conv2D(in_channels, 8, 3, stride=8)

    def forward(self, x):
        scale = np.asarray(x.numpy(), dtype="float32").mean()
        return self.conv(x * float(scale)).mean(axis=2, keepdim=True)


def test_what_cannot_be_compiled_is_a_sentence(tiny, monkeypatch):
    monkeypatch.setattr(model_wrappers, "gradients_are_right", lambda: True)
    config = tiny("student")
    head = config.at("Architecture.Head").thaw() | {
        "out_channels_list": {"CTCLabelDecode": 11, "NRTRLabelDecode": 14}
    }
    head["head_list"] = head["head_list"][:1]
    model = BaseModel({"Backbone": {"name": "Peeks"}, "Head": head | {"use_pool": False}})
    compiled = compile_model(model)
    with pytest.raises(ModelError, match=r"to_static: the model cannot be compiled .*to_static=false"):
        compiled(paddle.rand([2, 3, 32, 64]))
    compiled.eval()
    assert compiled(paddle.rand([2, 3, 32, 64])).shape[0] == 2  # evaluation is not compiled


def test_a_paddle_that_compiles_wrong_gradients_is_refused(monkeypatch):
    monkeypatch.setattr(model_wrappers, "gradients_are_right", lambda: False)
    with pytest.raises(ModelError, match="computes wrong gradients"):
        compile_model(BaseModel({}))


@pytest.mark.e2e
@pytest.mark.skipif(not model_wrappers.gradients_are_right(), reason="refused with this Paddle")
def test_compiled_training_gives_the_same_losses_and_names(tiny, tmp_path):
    folders = {}
    for compiled in (False, True):
        folders[compiled] = tmp_path / str(compiled)
        options = {
            "Global.to_static": compiled,
            "Global.save_model_dir": str(folders[compiled]),
            "Architecture.Models.Student.Backbone.drop_path_rate": 0.0,
            # Adam makes whole steps of gradients that are nothing but rounding
            "Optimizer": {
                "name": "Momentum",
                "momentum": 0.9,
                "lr": {"name": "Const", "learning_rate": 0.01},
            },
        }
        train(tiny("distill", **options), hooks=[NoDropout()])
    plain, compiled = ([line["losses"] for line in metrics(folders[k], "train")] for k in (False, True))
    assert len(plain) == 6 and plain[-1]["loss_ctc_Student_0"] < 0.98 * plain[0]["loss_ctc_Student_0"]
    for before, after in zip(plain, compiled, strict=True):
        assert before.keys() == after.keys()
        np.testing.assert_allclose(list(after.values()), list(before.values()), rtol=1e-4, atol=1e-6)
    ours, theirs = (read_state(folders[k] / "latest.pdparams") for k in (True, False))
    assert ours.keys() == theirs.keys()
    assert metrics(folders[True], "eval")[-1]["acc"] == metrics(folders[False], "eval")[-1]["acc"]
