"""A run that may be the best only while it still reads a general list."""

import json
import signal
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from tiny_runs import StopAfter, metrics

from ppocr_ext.base import Proxy
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import BEFORE, POINTS, weights_note
from ppocr_ext.checkpoint.weights import full_precision
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.evaluation.blend import BlendPoint, best_blend
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.hooks import keep_general
from ppocr_ext.loop.hooks.ema import Ema
from ppocr_ext.loop.hooks.keep_general import DROP, GENERAL, KeepGeneral
from ppocr_ext.loop.session import train
from ppocr_ext.run.general import open_general
from ppocr_ext.run.run import Run

pytestmark = pytest.mark.e2e
FAR = 60.0  # the last weights are about 0.4 away


@pytest.fixture
def kept(tiny, tmp_path, weights):
    """Config of a run of six steps from `weights`, evaluated at each second one, with a general list."""

    def build(name="run", **values):
        config = tiny("student")
        base = {
            "Global.save_model_dir": str(tmp_path / name),
            "Global.pretrained_model": str(weights),
            "Global.eval_batch_step": [0, 2],
            "Global.dry_step": False,
            "Eval.general.dataset.label_file_list": list(config.at("Train.dataset.label_file_list")),
            "Eval.general.max_drop": 0.1,
        }
        return tiny("student", **{**base, **values})

    return build


@pytest.fixture
def forgetting(monkeypatch, weights):
    """Let a network read less the farther its weights are from those before: 0.9 less `speed` times the distance.

    The new lines are the other way round.
    """
    before = Checkpoint(weights).weights()

    def plan(speed):
        def evaluate(hook, loader):
            moved = [
                np.abs(tensor.numpy() - before[name]).mean()
                for name, tensor in hook._tensors.items()
                if tensor.ndim > 1
            ]
            far = speed * float(np.mean(moved))
            return {"acc": max(0.0, 0.9 - far) if loader is hook._loader else min(1.0, far)}

        monkeypatch.setattr(KeepGeneral, "_evaluate", evaluate)

    return plan


def general(folder):
    return json.loads((folder / POINTS).read_text(encoding="utf-8"))


def read_in(folder):
    """The general accuracy of the evaluations, and what is lost of it."""
    return [(each[GENERAL], each[DROP]) for each in metrics(folder) if GENERAL in each]


def test_the_general_list_is_read_and_not_that_of_eval(kept):
    run = Run.build(kept(), "train")
    loader = open_general(run.context, run.network, run.data.preflight)
    assert (len(loader.dataset), len(run.data.eval_loader.dataset)) == (24, 10)


def test_weights_that_keep_the_list_are_the_best_as_without_it(kept, forgetting, tmp_path):
    forgetting(0.0)
    assert train(kept()).status == "finished"
    plain = kept("plain", **{"Eval.general": None})
    train(plain)
    (_, ours), (_, theirs) = (
        (name, Checkpoint(tmp_path / name / "latest").weights()) for name in ("run", "plain")
    )
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    assert all(each["share"] > 0.5 for each in general(tmp_path / "run")["points"])
    assert read_in(tmp_path / "run")[0] == (0.9, 0.0)


def test_weights_that_forget_are_drawn_back(kept, forgetting, tmp_path, weights):
    forgetting(FAR)
    best = train(kept()).best
    assert best == Checkpoint(tmp_path / "run" / "latest").train_state().best
    content = general(tmp_path / "run")
    chosen = best_blend([BlendPoint(**each) for each in content["points"]], 0.8, 10, 0.0).share
    assert 0 < chosen < 1
    assert read_in(tmp_path / "run")[-1][1] > 0.1  # so the last weights are not the best

    before, best, last = (
        Checkpoint(path).weights()
        for path in (weights, tmp_path / "run" / "best_accuracy", tmp_path / "run" / "latest")
    )
    assert "Eval.general" in str(weights_note(Checkpoint(tmp_path / "run" / "best_accuracy").train_state()))
    for name, tensor in before.items():
        if tensor.ndim > 1:
            np.testing.assert_allclose(best[name], tensor + chosen * (last[name] - tensor), atol=1e-6)


def test_of_two_that_read_as_many_new_lines_the_best_reads_more_general_ones(
    kept, forgetting, monkeypatch, tmp_path
):
    forgetting(1.0)  # every evaluation reads none of Eval, and fewer general lines than the one before
    monkeypatch.setattr(KeepGeneral, "on_trained", lambda hook: None)
    outcome = train(kept(**{"Eval.general.max_drop": 0.5}))
    (before, _), (first, _), (second, _), *_ = read_in(tmp_path / "run")
    assert before > first > second
    assert outcome.best[GENERAL] == first  # those before the training give way to trained ones


@pytest.mark.parametrize(("lucky", "stays"), [(0.9, False), (1.0, True)])
def test_an_early_evaluation_that_is_best_by_chance_gives_way(kept, forgetting, monkeypatch, lucky, stays):
    """Of ten lines, two standard errors are 0.22 at an accuracy of 0.9, and 0.16 at 1."""
    real = KeepGeneral.judge_best

    def with_luck(hook, metrics, at_start):
        metrics["acc"] = 0.0 if at_start else lucky
        return real(hook, metrics, at_start)

    monkeypatch.setattr(KeepGeneral, "judge_best", with_luck)
    forgetting(1.5 * FAR)  # the last weights read 0.76
    best = train(kept(**{"Eval.general.max_drop": 1})).best
    assert (best["acc"] == lucky) is stays and best["acc"] >= 0.68


def test_what_is_kept_of_16_bit_weights_is_float32(kept, monkeypatch, tmp_path):
    monkeypatch.setattr(KeepGeneral, "_evaluate", lambda hook, loader: {"acc": 0.5})
    monkeypatch.setattr(keep_general, "open_general", lambda *run: SimpleNamespace(dataset=range(10)))
    run = Run.build(kept(), "train")
    exact = {name: tensor.numpy().copy() for name, tensor in run.network.state_dict().items()}
    optimizer = run.training.optimizer
    stored = partial(full_precision, optimizer=optimizer, copies=exact)
    training = replace(run.training, full_precision=stored)
    run.network.to(dtype="bfloat16")  # as level O2 does
    hook, ema = KeepGeneral(0.1), Ema(0.5)
    loop = {"best": {}, "save_best": lambda metrics, is_start: None, "interruptible": lambda loader: loader}
    hook.loop = SimpleNamespace(**loop)
    hook.on_start(run, training)
    before = Checkpoint(tmp_path / "run" / BEFORE).weights()
    assert all(np.array_equal(value, exact[name]) for name, value in before.items())

    named = dict(run.network.named_parameters())
    masters = {each.name: paddle.to_tensor(1.01 * exact[name]) for name, each in named.items()}
    monkeypatch.setattr(optimizer, "_master_weights", masters, raising=False)
    ema.on_start(run, training)
    for each in named.values():  # a step
        each.set_value(paddle.assign(2 * masters[each.name], masters[each.name]).astype("bfloat16"))
    ema.on_eval_start()
    hook.on_trained()
    ema.on_eval_end()
    share = min(point["share"] for point in general(tmp_path / "run")["points"])
    for name, each in named.items():
        np.testing.assert_allclose(hook._chosen[name].numpy(), (1 + share / 100) * exact[name], 1e-5)
        np.testing.assert_allclose(masters[each.name].numpy(), 2.02 * exact[name], 1e-6)


def test_all_may_be_lost(kept, forgetting):
    forgetting(1e6)
    assert train(kept(**{"Eval.general.max_drop": 1})).status == "finished"


@pytest.mark.parametrize("step", [3, 6])
def test_a_run_that_was_killed_can_be_resumed_until_it_has_chosen(
    kept, forgetting, tmp_path, step, monkeypatch
):
    forgetting(FAR)
    train(kept("whole"))
    monkeypatch.setattr(KeepGeneral, "on_trained", lambda hook: None)  # as if it were killed before
    train(kept(), hooks=[StopAfter(step)] * (step < 6))
    monkeypatch.undo()
    forgetting(FAR)
    resumed = kept(**{"Global.checkpoints": str(tmp_path / "run" / "latest")})
    assert train(resumed).status == "finished"
    assert general(tmp_path / "run") == general(tmp_path / "whole")
    one, other = (Checkpoint(tmp_path / name / "best_accuracy").weights() for name in ("run", "whole"))
    assert all(np.array_equal(one[name], other[name]) for name in other)
    with pytest.raises(ConfigError, match="nothing_left|finished epoch"):
        train(resumed)


class AskInReading(Proxy):
    """A loader that stops the run in one of its readings, and sees at the next batch whether that saves it."""

    def __init__(self, real, at, latest):
        super().__init__(real)
        self.at, self.latest, self.files = at, latest, []

    def __len__(self):
        return len(self.real)

    def __iter__(self):
        self.at -= 1
        for number, batch in enumerate(self.real):
            if self.at == 0:
                self.files.append(self.latest.is_file())
                if number == 0:
                    signal.raise_signal(signal.SIGINT)
            yield batch


@pytest.mark.parametrize(("reading", "saves"), [(1, False), (2, True)])
def test_a_stop_while_the_list_is_read_saves_before_that_ends(kept, monkeypatch, tmp_path, reading, saves):
    """There is nothing to save in the first reading, of the weights before the training."""
    latest, loaders = tmp_path / "run" / "latest.pdparams", []

    def opened(*run):
        loaders.append(AskInReading(open_general(*run), reading, latest))
        return loaders[0]

    monkeypatch.setattr(keep_general, "open_general", opened)
    outcome = train(kept(**{"Eval.loader.batch_size_per_card": 2, "Global.ema": 0.9}))
    assert loaders[0].files[:2] == [False, saves]
    assert outcome.signal == signal.SIGINT
    assert outcome.position.global_step == (2 if saves else 0)


@pytest.mark.parametrize("eval_at_start", [True, False])
def test_a_training_that_gains_nothing_allowed_says_so(kept, forgetting, tmp_path, weights, eval_at_start):
    forgetting(1e6)
    outcome = train(kept(**{"Global.eval_at_start": eval_at_start}))
    assert (outcome.status, outcome.best["best_epoch"]) == ("not_kept", 0)
    best, before = Checkpoint(tmp_path / "run" / "best_accuracy").weights(), Checkpoint(weights).weights()
    assert all(np.array_equal(best[name], before[name]) for name in before)


def test_a_training_from_nothing_has_nothing_to_keep(kept, tmp_path):
    assert train(kept(**{"Global.pretrained_model": None})).status == "finished"
    assert not (tmp_path / "run" / POINTS).exists()


@pytest.mark.parametrize(
    "values",
    [
        {"max_drop": 1.5},
        {"max_dorp": 0.1},
        {"dataset": None},
        {"dataset": {"data_dir": ".", "label_file_lst": ["list.txt"]}},  # else that of Eval would be read
        {"dataset.label_file_list": ["nothing.txt"]},
    ],
)
def test_a_section_that_cannot_be_meant_is_refused(kept, values):
    with pytest.raises(InvalidConfigError):
        train(kept(**{f"Eval.general.{key}": value for key, value in values.items()}))


@pytest.mark.parametrize("line", ["", "{}\té", "gone.png\t12", "val_list.txt\t12"])
def test_a_list_that_cannot_judge_is_refused(kept, captchas, tmp_path, line):
    (tmp_path / "list.txt").write_text(
        line.format(next(captchas.rglob("*.png")).relative_to(captchas)), "utf-8"
    )
    with raises_code(DataError, "too_many_unusable" if line else "empty_file", "Eval.general"):
        train(kept(**{"Eval.general.dataset.label_file_list": [str(tmp_path / "list.txt")]}))
