"""What a run evaluates besides the steps of the host: its start weights, and its last step; which is the best."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_runs import DRAWING, StopAfter, metrics
from waiting import HANG

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import START, checkpoint_line
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.loop.events import EvalDone, Hook, Position
from ppocr_ext.loop.hooks.early_stop import EarlyStop
from ppocr_ext.loop.session import train
from ppocr_ext.report.run_page import write_report

pytestmark = pytest.mark.e2e
TIMES = ("time", "ips", "fps")


@pytest.fixture
def fine_tuned(tiny, tmp_path, weights):
    """Config of a run of six steps from `weights`, which PaddleOCR's loop would evaluate at step 4 alone."""

    def build(name="run", **values):
        base = {
            "Global.save_model_dir": str(tmp_path / name),
            "Global.pretrained_model": str(weights),
            "Global.eval_batch_step": [0, 4],
            "Global.dry_step": False,
        }
        return tiny("student", **{**base, **values})

    return build


class Planned(Hook):
    """Evaluations with these accuracies; `seen` has the step of each."""

    def __init__(self, *accuracies):
        self.accuracies, self.seen = iter(accuracies), []

    def wrap_metric(self, metric):
        real = metric.get_metric
        metric.get_metric = lambda: {**real(), "acc": next(self.accuracies)}
        return metric

    def on_eval(self, result):
        self.seen.append((result.position.global_step, result.is_best, result.is_start))


def lines(folder, kind=None):
    return [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(folder, kind)]


def assert_same_weights(one, other):
    ours, theirs = Checkpoint(one).weights(), Checkpoint(other).weights()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("accuracies", "best"), [((0.9, 0.5, 0.6), 0), ((0.4, 0.7, 0.6), 4), ((0.5, 0.5, 0.5), 6)]
)
def test_the_best_checkpoint_is_the_best_of_all_evaluations(fine_tuned, tmp_path, weights, accuracies, best):
    run, planned = tmp_path / "run", Planned(*accuracies)
    train(fine_tuned(), hooks=[planned])
    assert [(line["step"], line["acc"]) for line in lines(run, "eval")] == list(
        zip((0, 4, 6), accuracies, strict=True)
    )
    assert [step for step, is_best, _ in planned.seen if is_best][-1] == best
    assert [is_start for _, _, is_start in planned.seen] == [True, False, False]
    state = Checkpoint(run / "best_accuracy").train_state()
    assert (state.position.global_step, state.best["acc"]) == (best, max(accuracies))
    latest = Checkpoint(run / "latest").train_state()
    assert latest.best == state.best == pytest.approx(json.loads((run / "run.json").read_text())["best"])
    if best != 4:
        assert_same_weights(run / "best_accuracy", run / "latest" if best else weights)
    said = checkpoint_line(run / "best_accuracy")
    assert said.startswith(f"{run}/best_accuracy: step {best}") and said.endswith(
        f"acc {100 * max(accuracies):.2f} %"
    )
    assert (START in said) == (best == 0)
    assert checkpoint_line(run / "latest") == f"{run}/latest: step 6, acc {100 * accuracies[-1]:.2f} %"


def test_commands_and_the_page_say_that_no_training_was_better(fine_tuned, tmp_path, captchas, capsys):
    config = fine_tuned()
    train(config, hooks=[Planned(0.9, 0.5, 0.6)])
    run, said = tmp_path / "run", f"step 0 ({START}), acc 90.00 %"
    write_report([run], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"best_accuracy: {said}" in page and "latest: step 6, acc 60.00 %" in page
    capsys.readouterr()
    image = next(captchas.glob("**/*.png"))
    best = f"Global.checkpoints={run / 'best_accuracy'}"
    for command in (
        ["predict", run, image],
        ["export", run, "--format", "paddle"],
        ["eval", "-c", run / "config.yml", "-o", best],
        ["export-center", "-c", run / "config.yml", "-o", best, "--all-lines", "--output", run / "c.npz"],
        ["checkpoint", "inspect", run / "best_accuracy"],
    ):
        assert main(list(map(str, command))) == 0
        shown = capsys.readouterr()
        assert f"{run}/best_accuracy: {said}" in shown.out + shown.err, command[0]
    assert f"run/best_accuracy: {said}" in (run / "inference" / "README.md").read_text()


def test_the_first_evaluation_changes_no_bit_of_the_training(fine_tuned, tmp_path):
    transforms = fine_tuned().thaw()["Train"]["dataset"]["transforms"]
    drawing = {
        "Global.eval_batch_step": [0, 3],
        "Train.dataset.ext_op_transform_idx": 1,
        "Train.dataset.transforms": [transforms[0], *DRAWING, *transforms[1:]],
    }
    for name, asked in (("with", True), ("without", False)):
        train(fine_tuned(name, **drawing, **{"Global.eval_at_start": asked}))
    assert_same_weights(tmp_path / "with" / "latest", tmp_path / "without" / "latest")
    ours, theirs = (
        [*Checkpoint(tmp_path / name / "latest").optimizer_state().values()] for name in ("with", "without")
    )
    np.testing.assert_equal(ours, theirs)
    found = lines(tmp_path / "with")
    assert (found[0]["kind"], found[0]["step"]) == ("eval", 0)
    assert found[1:] == lines(tmp_path / "without")


def test_a_model_from_noise_and_a_frozen_teacher_have_no_first_evaluation(
    tiny, fine_tuned, tmp_path, weights
):
    train(tiny("distill", **{"Architecture.Models.Teacher.pretrained": str(weights), "Global.epoch_num": 1}))
    assert [line["step"] for line in lines(tmp_path / "run", "eval")] == [3]
    both = {f"Architecture.Models.{name}.pretrained": str(weights) for name in ("Teacher", "Student")}
    train(tiny("distill", **both, **{"Global.epoch_num": 1}), overwrite=True)
    assert [line["step"] for line in lines(tmp_path / "run", "eval")] == [0, 3]


class Killed(BaseException):
    """Stands for a kill: nothing is saved after it."""


class KillIn(Hook):
    """Kill the run in an event at a step."""

    def __init__(self, event, step):
        self._step, self._at = 0, step
        setattr(self, event, self._kill)

    def on_step(self, step):
        self._step = step.position.global_step

    def _kill(self, *args):
        if self._step == self._at:
            raise Killed


OFTEN = {"Global.save_minutes": 1e-9}  # `latest` at each step


@pytest.mark.parametrize(
    ("events", "more"), [(["on_eval_start"], {"Global.ema": 0.9}), (["on_eval", "on_save"], {})]
)
def test_a_run_that_is_killed_at_its_last_evaluation_is_resumed_exactly(fine_tuned, tmp_path, events, more):
    train(fine_tuned("whole", **OFTEN, **more))
    for event in events:
        with pytest.raises(Killed):
            train(fine_tuned(event, **OFTEN, **more), hooks=[KillIn(event, 6)])
        latest = tmp_path / event / "latest"
        assert Checkpoint(latest).train_state().position.global_step == 5
        train(fine_tuned(event, **OFTEN, **more, **{"Global.checkpoints": str(latest)}))
        assert lines(tmp_path / event) == lines(tmp_path / "whole")
        assert [line["step"] for line in lines(tmp_path / event, "eval")] == [0, 4, 6]
        for name in ("latest", "best_accuracy"):
            assert_same_weights(tmp_path / event / name, tmp_path / "whole" / name)


def test_a_resume_does_not_evaluate_the_start_again(fine_tuned, tmp_path):
    with pytest.raises(Killed):  # after the first evaluation
        train(fine_tuned(), hooks=[KillIn("measure_outputs", 0)])
    best = tmp_path / "run" / "best_accuracy"
    before = lines(tmp_path / "run", "eval")
    assert [line["step"] for line in before] == [0]
    train(fine_tuned(**{"Global.checkpoints": str(best)}))
    after = lines(tmp_path / "run", "eval")
    assert after[0] == before[0] and [line["step"] for line in after] == [0, 4, 6]
    train(fine_tuned(**{"Global.epoch_num": 1}), overwrite=True)  # a new run begins its record anew
    assert [line["step"] for line in lines(tmp_path / "run", "eval")] == [0, 3]


@pytest.mark.parametrize("more", [{}, {"Global.accumulate": 2, "Global.early_stop": {"patience": 9}}])
def test_a_run_that_is_made_longer_keeps_the_line_of_its_former_end(fine_tuned, tmp_path, more):
    more = {**more, "Global.eval_batch_step": [0, 2]}
    train(fine_tuned(**more, **{"Global.epoch_num": 1}), hooks=[Planned(0.1, 0.2, 0.3)])
    run = tmp_path / "run"
    latest = Checkpoint(run / "latest")
    assert latest.train_state().best["acc"] == 0.3  # `latest` of the end knows of its evaluation
    train(fine_tuned(**more, **{"Global.checkpoints": str(latest.prefix)}), hooks=[Planned(0.1, 0.2)])
    assert [line["step"] for line in lines(run, "eval")] == [0, 2, 3, 4, 6]
    assert Checkpoint(run / "best_accuracy").train_state().position.global_step == 3


def test_a_run_without_eval_ends_as_before(fine_tuned, tmp_path):
    plain = fine_tuned().thaw()
    del plain["Eval"]
    assert train(Config(plain, "test")).status == "finished"
    assert lines(tmp_path / "run", "eval") == []
    assert json.loads((tmp_path / "run" / "run.json").read_text())["never_evaluated"] == ""


def test_a_run_that_is_stopped_says_which_steps_were_never_evaluated(fine_tuned, tmp_path):
    run = tmp_path / "run"
    more = {"Global.eval_batch_step": [0, 3]}
    train(fine_tuned(**more), hooks=[StopAfter(5)])
    said = "steps 4 to 5 were never evaluated"
    assert json.loads((run / "run.json").read_text())["never_evaluated"] == said
    assert f"WARNING: {said}" in (run / "train.log").read_text()
    write_report([run], tmp_path / "report.html")
    assert said in (tmp_path / "report.html").read_text()
    assert "step 5, accuracy not known, best of its run: acc 0.00 %" in checkpoint_line(run / "latest")
    again = fine_tuned(**more, **{"Global.checkpoints": str(run / "latest")})
    train(again, hooks=[StopAfter(5)])  # it stops before another evaluation
    train(again.with_values({"Global.epoch_num": 3}), hooks=[StopAfter(8)])
    assert (
        json.loads((run / "run.json").read_text())["never_evaluated"] == "steps 7 to 8 were never evaluated"
    )


def test_rules_and_patience_begin_with_the_training(fine_tuned, tmp_path, weights):
    """Nothing is as good as the start weights, and that is neither a collapse nor the end of patience."""
    settings = {"Global.on_collapse": "stop", "Global.early_stop": {"patience": 2}}
    outcome = train(fine_tuned(**settings), hooks=[Planned(0.95, 0.01, 0.02)])
    assert (outcome.status, outcome.position.global_step) == ("finished", 6)
    hook = EarlyStop(1)
    metric = SimpleNamespace(main_indicator="acc")
    best = Checkpoint(tmp_path / "run" / "best_accuracy").train_state().best
    assert best["acc"] == 0.95
    training = SimpleNamespace(hook_states={}, best=best, start=Position())
    hook.on_start(SimpleNamespace(metric=metric), training)
    hook.on_eval(EvalDone(Position(), {"acc": 0.01}, False, {}))  # of a resumed run; it asks for nothing


def test_paddle_says_nothing_on_the_screen(fine_tuned, tmp_path):
    """With an optimizer that is empty at the first save, and weight decay of its own beside that of the parameters."""
    plain = fine_tuned().thaw()
    plain["Optimizer"] = {
        "name": "Adam",
        "clip_norm_global": 5.0,
        "lr": {"learning_rate": 0.001},
        "regularizer": {"name": "L2", "factor": 1e-4},
    }
    (tmp_path / "my.yml").write_text(Config(plain, "test").to_yaml())
    command = [sys.executable, "-m", "ppocr_ext", "train", "-c", str(tmp_path / "my.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "regularizer" not in done.stdout and "eval at step 0" in done.stdout


def test_the_line_of_a_checkpoint_says_what_is_known(weights, tmp_path):
    copy = tmp_path / "mine"
    for ending in (".pdparams", ".states"):
        shutil.copy(f"{weights}{ending}", f"{copy}{ending}")
    assert checkpoint_line(f"{copy}.pdparams") == f"{copy}: step 3, acc 0.00 %"
    with copy.with_suffix(".pdparams").open("ab") as stream:
        stream.write(b"another save")
    assert checkpoint_line(copy).startswith(f"{copy}: step and accuracy are not known: ")
    copy.with_suffix(".states").unlink()
    assert checkpoint_line(copy) == f"{copy}: step and accuracy are not known"


def test_a_best_evaluation_that_stops_the_run_is_saved(fine_tuned, tmp_path):
    class Collapse(Hook):
        def on_eval(self, result):
            if result.position.global_step == 4:
                self.loop.request_stop("a collapse", status="collapsed", save_latest=False)

    hooks = [Planned(0.2, 0.9), Collapse()]
    assert train(fine_tuned(), hooks=hooks).status == "collapsed"
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["best"]
    saved = Checkpoint(tmp_path / "run" / "best_accuracy").train_state()
    assert (recorded["acc"], saved.best["acc"], saved.position.global_step) == (0.9, 0.9, 4)
    assert (
        Checkpoint(tmp_path / "run" / "latest").train_state().position.global_step == 3
    )  # of the epoch before
