import json
import pickle
import signal
import sys

import numpy as np
import paddle
import pytest

from ppocr_ext.errors import ConfigError, DataError, WeightsError
from ppocr_ext.training.evaluate import evaluate
from ppocr_ext.training.events import Hook
from ppocr_ext.training.hooks.teacher_check import state_digest
from ppocr_ext.training.run import Run
from ppocr_ext.training.serialize import read_state
from ppocr_ext.training.session import train


class StopAfter(Hook):
    """Ask the run to stop after some steps, as a signal would."""

    def __init__(self, steps):
        self.steps = steps

    def on_step(self, step):
        if step.position.global_step == self.steps:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def finished(tiny, tmp_path):
    train(tiny("distill"))
    return tmp_path / "run"


def test_the_run_folder_holds_what_is_needed_to_repeat_or_judge_it(finished):
    names = {p.name for p in finished.iterdir()}
    assert {"config.yml", "run.json", "train.log", "metrics.jsonl", "preflight.json"} <= names
    for name in ("latest", "best_accuracy"):
        assert {f"{name}.pdparams", f"{name}.pdopt", f"{name}.states"} <= names
    record = json.loads((finished / "run.json").read_text())
    assert (record["status"], record["global_step"], record["epoch"]) == ("finished", 6, 2)
    assert set(record["frozen"]) == {"Teacher"}
    assert record["dictionary"]["classes"] == 11
    lines = [json.loads(text) for text in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if line["kind"] == "eval"] == [3, 6]
    step = next(line for line in lines if line["kind"] == "train")
    assert step["loss"] == pytest.approx(sum(step["losses"].values()), rel=1e-5)
    assert "epoch" in (finished / "train.log").read_text()


def test_the_written_config_builds_the_same_run(finished, tiny):
    from ppocr_ext.config import load

    again = load([finished / "config.yml"])
    assert again.at("Architecture.Models.Student.Head.out_channels_list") == {
        "CTCLabelDecode": 11,
        "NRTRLabelDecode": 14,
    }
    run = Run.build(again.with_values({"Global.checkpoints": str(finished / "latest")}), "eval")
    assert evaluate(run).judged == 10


def test_a_checkpoint_holds_what_is_trained(finished, tiny, tmp_path):
    assert all(name.startswith("Student.") for name in read_state(finished / "latest.pdparams"))


def test_save_teacher_adds_the_teacher_and_both_kinds_load(tiny, tmp_path):
    train(tiny("distill", **{"Global.save_teacher": True}))
    folder = tmp_path / "run"
    state = read_state(folder / "latest.pdparams")
    assert {name.split(".")[0] for name in state} == {"Student", "Teacher"}
    run = Run.build(tiny("distill", **{"Global.checkpoints": str(folder / "latest")}), "eval")
    teacher = evaluate(run, "Teacher")
    assert teacher.judged == 10


def test_a_frozen_teacher_is_bit_identical_after_training(tiny):
    digests = {}

    class Look(Hook):
        def on_start(self, run, position):
            self.run = run
            digests["before"] = state_digest(run.sub_model("Teacher"))

        def on_end(self, outcome):
            digests["after"] = state_digest(self.run.sub_model("Teacher"))
            digests["student"] = state_digest(self.run.sub_model("Student"))
            assert not any(
                layer.training for layer in self.run.sub_model("Teacher").sublayers(include_self=True)
            )

    train(tiny("distill"), hooks=[Look()])
    assert digests["before"] == digests["after"] != digests["student"]


def test_a_teacher_that_changes_is_noticed(tiny):
    class Meddle(Hook):
        def on_start(self, run, position):
            self.run = run

        def on_step(self, step):
            with paddle.no_grad():
                parameter = self.run.sub_model("Teacher").parameters()[0]
                parameter.set_value(parameter + 1)

    from ppocr_ext.errors import ModelError

    with pytest.raises(ModelError, match="Teacher is frozen"):
        train(tiny("distill"), hooks=[Meddle()])


def test_a_stopped_run_goes_on_to_where_an_unbroken_one_ends(tiny, tmp_path):
    whole = tiny("student", **{"Global.save_model_dir": str(tmp_path / "whole")})
    train(whole)
    broken = tiny("student", **{"Global.save_model_dir": str(tmp_path / "broken")})
    outcome = train(broken, hooks=[StopAfter(4)])
    assert (outcome.status, outcome.signal) == ("stopped", signal.SIGINT)
    states = pickle.loads((tmp_path / "broken" / "latest.states").read_bytes())
    assert (states["epoch"], states["step_in_epoch"], states["global_step"]) == (1, 1, 4)

    outcome = train(broken.with_values({"Global.checkpoints": str(tmp_path / "broken" / "latest")}))
    assert (outcome.status, outcome.position.global_step) == ("finished", 6)
    ours = read_state(tmp_path / "broken" / "latest.pdparams")
    theirs = read_state(tmp_path / "whole" / "latest.pdparams")
    assert ours.keys() == theirs.keys()
    lines = [json.loads(t) for t in (tmp_path / "broken" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [1, 2, 3, 4, 5, 6]


def test_without_dropout_the_resumed_run_is_the_unbroken_run(tiny, tmp_path):
    still = {
        "Architecture.Backbone.drop_path_rate": 0.0,
        "Architecture.Head.head_list.CTCHead.Neck.drop_rate": 0.0,
        "Architecture.Head.head_list.CTCHead.Neck.attn_drop_rate": 0.0,
        "Loss.weight_2": 0.0,  # the NRTR decoder has dropout
    }
    whole = tiny("student", **still, **{"Global.save_model_dir": str(tmp_path / "whole")})
    train(whole)
    broken = tiny("student", **still, **{"Global.save_model_dir": str(tmp_path / "broken")})
    train(broken, hooks=[StopAfter(4)])
    train(broken.with_values({"Global.checkpoints": str(tmp_path / "broken" / "latest")}))
    ours = read_state(tmp_path / "broken" / "latest.pdparams")
    theirs = read_state(tmp_path / "whole" / "latest.pdparams")
    for name in theirs:
        if "gtc" not in name:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_branches_that_no_loss_reads_are_neither_computed_nor_trained(tiny):
    config = tiny("distill")
    losses = [loss for loss in config.thaw()["Loss"]["loss_config_list"] if "DistillationCTCLoss" in loss]
    run = Run.build(config.with_values({"Loss.loss_config_list": losses}), "train")
    student = run.sub_model("Student")
    assert all(p.stop_gradient for p in student.head.gtc_head.parameters())
    assert not any(p.stop_gradient for p in student.head.ctc_head.parameters())
    batch = next(iter(run.train_loader))
    run.model.train()
    outputs = run.model(batch[0], data=batch[1:])
    assert "gtc" not in outputs["Student"]["head_out"]
    assert "ctc" in outputs["Student"]["head_out"]


def test_eval_judges_each_head_and_records_what_was_read(finished, tiny, captchas):
    run = Run.build(tiny("distill", **{"Global.checkpoints": str(finished / "latest")}), "eval")
    ctc = evaluate(run)
    gtc = evaluate(run, "Student", "gtc")
    lines = [line.split("\t") for line in (captchas / "val_list.txt").read_text().splitlines()]
    for result in (ctc, gtc):
        assert [(p.image, p.label) for p in result.predictions] == [tuple(line) for line in lines]
        assert result.left_out == 0
        right = sum(p.text == p.label for p in result.predictions)
        assert result.metrics["acc"] == pytest.approx(right / 10, abs=1e-4)


def test_a_bad_line_is_left_out_of_an_evaluation_and_counted(finished, tiny, captchas, tmp_path):
    lines = (captchas / "val_list.txt").read_text().splitlines()
    (tmp_path / "val.txt").write_text("\n".join([*lines[:3], "nowhere.png\t1234", *lines[3:5]]) + "\n")
    config = tiny(
        "distill",
        **{
            "Global.checkpoints": str(finished / "latest"),
            "Eval.dataset.label_file_list": [str(tmp_path / "val.txt")],
        },
    )
    result = evaluate(Run.build(config, "eval"))
    assert (result.judged, result.left_out) == (5, 1)
    assert [p.image for p in result.predictions] == [line.split("\t")[0] for line in lines[:5]]


def test_eval_without_weights_says_how_to_give_them(tiny):
    with pytest.raises(WeightsError, match=r"-o Global\.checkpoints="):
        Run.build(tiny("student"), "eval")


def test_unknown_model_and_missing_head_are_named(finished, tiny):
    run = Run.build(tiny("distill", **{"Global.checkpoints": str(finished / "latest")}), "eval")
    with pytest.raises(ConfigError, match="Teacher, Student"):
        evaluate(run, "Nobody")


def test_pretrained_of_a_teacher_is_loaded_from_a_single_models_checkpoint(tiny, tmp_path):
    train(tiny("student", **{"Global.save_model_dir": str(tmp_path / "teacher")}))
    config = tiny(
        "distill", **{"Architecture.Models.Teacher.pretrained": str(tmp_path / "teacher" / "latest")}
    )
    run = Run.build(config, "train")
    saved = read_state(tmp_path / "teacher" / "latest.pdparams")
    for name, tensor in run.sub_model("Teacher").state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), saved[name], err_msg=name)


def test_a_teacher_file_that_is_not_there_is_named(tiny):
    config = tiny("distill", **{"Architecture.Models.Teacher.pretrained": "no/where"})
    with pytest.raises(WeightsError, match=r"Architecture\.Models\.Teacher\.pretrained.*no/where\.pdparams"):
        Run.build(config, "train")


def test_no_full_batch_is_a_sentence(tiny):
    with pytest.raises(DataError, match="24 usable lines do not fill one batch of 500"):
        Run.build(tiny("student", **{"Train.loader.batch_size_per_card": 500}), "train")


def test_a_loss_that_reads_an_unknown_sub_model_is_named(tiny):
    config = tiny("distill", **{"Loss.loss_config_list.DistillationCTCLoss.model_name_list": ["Pupil"]})
    with pytest.raises(ConfigError, match="Pupil"):
        Run.build(config, "train")


PLUGIN = '''
import paddle
from ppocr_ext.registry import BACKBONES, LOSSES


@BACKBONES.register()
class Stripes(paddle.nn.Layer):
    """A backbone of a user's own: one convolution down to a line."""

    def __init__(self, in_channels=3, width=12):
        super().__init__()
        self.out_channels = width
        self.conv = paddle.nn.Conv2D(in_channels, width, 3, stride=(1, 8), padding=1)

    def forward(self, x):
        return self.conv(x).mean(axis=2, keepdim=True)


@LOSSES.register()
class HalfCTC(paddle.nn.Layer):
    """A loss of a user's own: half of CTC."""

    def __init__(self):
        super().__init__()
        self.ctc = paddle.nn.CTCLoss(blank=0)

    def forward(self, predicts, batch):
        logits = predicts["ctc"].transpose([1, 0, 2])
        frames = paddle.full([logits.shape[1]], logits.shape[0], dtype="int64")
        value = 0.5 * self.ctc(logits, batch[1].astype("int32"), frames, batch[3].astype("int64"))
        return {"half_ctc": value, "loss": value}
'''


def test_a_users_own_backbone_and_loss_train(tiny, tmp_path, monkeypatch):
    (tmp_path / "my_parts.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = tiny(
        "student",
        **{
            "Global.plugins": ["my_parts"],
            "Architecture.Backbone": {"name": "Stripes", "width": 16},
            "Loss": {"name": "HalfCTC"},
        },
    )
    outcome = train(config)
    assert (outcome.status, outcome.position.global_step) == ("finished", 6)
    lines = [json.loads(t) for t in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert "half_ctc" in lines[0]["losses"]
    sys.modules.pop("my_parts", None)


def test_a_plugin_that_cannot_be_imported_is_named(tiny):
    with pytest.raises(ConfigError, match="Global.plugins: 'nobody_has_this'"):
        Run.build(tiny("student", **{"Global.plugins": ["nobody_has_this"]}), "train")
