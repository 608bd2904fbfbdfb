"""A run that may be the best only while it still reads a general list."""

import json
import math
import shlex
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from tiny_runs import StopAfter, metrics

from ppocr_ext.base import Proxy
from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState
from ppocr_ext.checkpoint.contents import BEFORE, POINTS, weights_note, write_weights
from ppocr_ext.checkpoint.files import remove_checkpoints
from ppocr_ext.checkpoint.weights import full_precision
from ppocr_ext.errors import ConfigError, DataError, WeightsError
from ppocr_ext.evaluation.blend import BlendPoint, best_blend, blend_tensors
from ppocr_ext.evaluation.evaluate import evaluate_now
from ppocr_ext.evaluation.general_list import GeneralList
from ppocr_ext.issues import InvalidConfigError
from ppocr_ext.loop.hooks import keep_general
from ppocr_ext.loop.hooks.ema import Ema
from ppocr_ext.loop.hooks.keep_general import DROP, GENERAL, KeepGeneral
from ppocr_ext.loop.session import train
from ppocr_ext.run.loader import Loader
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

    def plan(speed, most_read=math.inf):
        def far(part):
            moved = [
                np.abs(tensor.numpy() - before[name]).mean()
                for name, tensor in blend_tensors(part._run.network).items()
                if tensor.ndim > 1
            ]
            return speed * float(np.mean(moved))

        def right(part):
            kept = (0.9 - far(part)) * part.reports
            return {
                each: place + 0.5 < kept for place, each in enumerate(sorted(part._digests)[part.chooses :])
            }

        monkeypatch.setattr(KeepGeneral, "_read", lambda hook, *what: {"acc": min(1.0, far(hook))})
        monkeypatch.setattr(GeneralList, "accuracy", lambda part: max(0.0, 0.9 - far(part)))
        monkeypatch.setattr(GeneralList, "right", right)
        monkeypatch.setattr(keep_general, "_MOST_READ", most_read)

    return plan


def general(folder):
    return json.loads((folder / POINTS).read_text(encoding="utf-8"))


def read_in(folder):
    """The general accuracy of the evaluations, and what is lost of it."""
    return [(each[GENERAL], each[DROP]) for each in metrics(folder) if GENERAL in each]


def lists_of(config):
    """The general list of a run, in two parts: (digest, choosing lines, reporting lines)."""
    run = Run.build(config, "train")
    part = GeneralList(run, 0.1, partial(evaluate_now, run))
    choosing = sorted(set(part._digests) - set(part.right()))
    assert part.accuracy() == 0 and len(choosing) == part.chooses
    return part.digest, choosing, part.right(), part


def test_the_content_of_a_line_decides_whether_it_chooses_or_reports(kept, captchas, tmp_path):
    """Neither its path nor its place, nor the share of Eval that is read."""
    moved = tmp_path / "moved"
    shutil.copytree(captchas / "train", moved / "others")
    lines = (captchas / "train_list.txt").read_text("utf-8").replace("train/", "others/").splitlines(True)
    (moved / "list.txt").write_text("".join(reversed(lines)), "utf-8")
    values = {"data_dir": str(moved), "label_file_list": [str(moved / "list.txt")]}
    other = {f"Eval.general.dataset.{key}": value for key, value in values.items()}
    digest, choosing, reporting, _ = lists_of(kept())
    assert (len(choosing), len(reporting)) == (12, 12)
    assert lists_of(kept(**other, **{"Eval.dataset.ratio_list": [0.4]}))[:3] == (digest, choosing, reporting)
    (moved / "list.txt").write_text("".join(lines[:1]), "utf-8")
    assert [*map(len, lists_of(kept(**other))[1:3])] == [1, 0]


def test_lines_of_one_page_show_less_than_lines_that_stand_alone(kept, captchas, tmp_path):
    shutil.copytree(captchas, tmp_path / "data")
    lines = (captchas / "train_list.txt").read_text("utf-8").splitlines(True)
    for number, line in enumerate(lines):
        name, _, label = line.partition("\t")
        (tmp_path / "data" / name).rename(tmp_path / "data" / f"page_crop_{number}.png")
        lines[number] = f"page_crop_{number}.png\t{label}"
    (tmp_path / "data" / "list.txt").write_text("".join(lines), "utf-8")
    page = {"data_dir": str(tmp_path / "data"), "label_file_list": [str(tmp_path / "data" / "list.txt")]}
    most_lost = []
    for values in ({}, {f"Eval.general.dataset.{key}": value for key, value in page.items()}):
        part = lists_of(kept(**values))[-1]
        most_lost.append(part.compare(part.right())["most_lost"])
    assert 0.2 < most_lost[0] < most_lost[1] < 1


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
    report = content["report"]
    assert (report["lines"], report["before"], report["won"]) == (12, 11 / 12, 0)
    assert best[GENERAL] == report["after"]  # not what the lines that chose say
    assert report["most_lost"] > report["lost"] / 12 == pytest.approx(report["before"] - report["after"])

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


@pytest.mark.parametrize(("lucky", "stays"), [(0.9, False), (1.0, False), (1.0, True)])
def test_an_early_evaluation_that_is_best_by_chance_gives_way(kept, forgetting, monkeypatch, lucky, stays):
    """Of ten lines, two standard errors of a difference are 0.28: that of an accuracy is at least one line."""
    real = KeepGeneral.judge_best

    def with_luck(hook, metrics, step):
        metrics["acc"] = lucky if step else 0.0
        return real(hook, metrics, step)

    monkeypatch.setattr(KeepGeneral, "judge_best", with_luck)
    forgetting((1.3 if stays else 1.5) * FAR)  # the last weights read 0.66 or 0.76
    best = train(kept(**{"Eval.general.max_drop": 1})).best
    assert (best["acc"] == lucky) is stays and best["acc"] >= lucky - 0.29


def test_the_list_is_read_for_a_quarter_of_the_time(kept, forgetting, tmp_path):
    """A line takes a third of the time of a sample: 24 lines before the training, and 12 after 48 samples."""
    forgetting(1.0, most_read=0.75)
    train(kept())
    assert [each["step"] for each in metrics(tmp_path / "run") if GENERAL in each] == [0, 6]


def test_weights_that_read_as_much_as_refused_ones_may_keep_more(kept, forgetting, monkeypatch):
    forgetting(0.0)
    read = iter([0.9, 0.1, 0.85, *[0.1] * 9])  # before, at steps 2 and 4, and at the end
    monkeypatch.setattr(GeneralList, "accuracy", lambda part: next(read))
    assert train(kept()).best[GENERAL] == 0.85


def test_another_list_is_read_by_the_weights_before(kept, forgetting, captchas, tmp_path):
    forgetting(FAR)
    train(kept(), hooks=[StopAfter(3)])
    (tmp_path / "list.txt").write_text(
        "".join((captchas / "train_list.txt").open(encoding="utf-8").readlines()[:20])
    )
    latest = str(tmp_path / "run" / "latest")
    other = {
        "Eval.general.dataset.label_file_list": [str(tmp_path / "list.txt")],
        "Global.checkpoints": latest,
    }
    assert train(kept(**other)).status == "finished"
    content = general(tmp_path / "run")
    assert (content["before"], content["report"]["lines"]) == (0.9, 10)
    assert content["report"]["before"] == 0.9


def test_without_the_weights_before_nothing_could_be_kept(kept, forgetting, tmp_path):
    forgetting(0.0)
    train(kept(), hooks=[StopAfter(3)])
    Path(f"{tmp_path / 'run' / BEFORE}.pdparams").unlink()
    with raises_code(WeightsError, "missing_file", BEFORE):
        train(kept(**{"Global.checkpoints": str(tmp_path / "run" / "latest")}))


def test_a_run_that_goes_on_in_another_folder_keeps_its_own_weights_before(kept, forgetting, tmp_path):
    forgetting(0.0)
    train(kept("other", **{"Global.epoch_num": 1}))
    prefix = tmp_path / "other" / BEFORE
    zeros = {name: 0 * value for name, value in Checkpoint(prefix).weights().items()}
    remove_checkpoints(prefix.parent, [BEFORE])
    write_weights(prefix, zeros, TrainState())
    train(kept(), hooks=[StopAfter(3)])
    train(kept("other", **{"Global.checkpoints": str(tmp_path / "run" / "latest")}), overwrite=True)
    own, theirs = (Checkpoint(tmp_path / name / BEFORE).weights() for name in ("run", "other"))
    assert all(np.array_equal(theirs[name], own[name]) for name in own)


def test_a_run_without_a_list_replaces_what_one_with_a_list_wrote(kept, forgetting, tmp_path):
    forgetting(0.0)
    train(kept())
    train(kept(**{"Eval.general": None}), overwrite=True)
    assert not list((tmp_path / "run").glob("before_training*")) and not (tmp_path / "run" / POINTS).exists()


def test_an_early_stop_that_was_killed_before_it_chose_can_be_resumed(
    kept, forgetting, monkeypatch, tmp_path
):
    early = {"Global.early_stop": {"patience": 1}}
    forgetting(0.0)
    monkeypatch.setattr(KeepGeneral, "on_trained", lambda hook: None)
    assert train(kept(**early)).position.global_step == 4
    monkeypatch.undo()
    forgetting(0.0)
    resumed = kept(**early, **{"Global.checkpoints": str(tmp_path / "run" / "latest")})
    assert train(resumed).position.global_step == 4
    assert general(tmp_path / "run")["points"]
    with raises_code(ConfigError, "nothing_left"):
        train(resumed)


def test_the_way_on_of_a_run_that_kept_nothing_is_a_blend(kept, forgetting):
    forgetting(FAR / 2)  # half of the new lines, and about as many points of the general list
    outcome = train(kept(**{"Eval.general.max_drop": 0.0}))
    assert outcome.status == "not_kept"
    words = shlex.split(outcome.reason[outcome.reason.index("ppocr-ext blend") :])
    assert words[1] == "blend" and 0 < float(words[words.index("--max-drop") + 1]) <= 0.3


def test_what_is_kept_of_16_bit_weights_is_float32(kept, monkeypatch, tmp_path):
    half = {"digest": "", "chooses": 1, "reports": 0, "accuracy": lambda: 0.5, "right": dict, "compare": dict}
    monkeypatch.setattr(KeepGeneral, "_read", lambda hook, *what: {"acc": 0.5})
    monkeypatch.setattr(keep_general, "GeneralList", lambda *of: SimpleNamespace(**half))
    run = Run.build(kept(), "train")
    exact = {name: tensor.numpy().copy() for name, tensor in run.network.state_dict().items()}
    optimizer = run.training.optimizer
    stored = partial(full_precision, optimizer=optimizer, copies=exact)
    training = replace(run.training, full_precision=stored)
    run.network.to(dtype="bfloat16")  # as level O2 does
    hook, ema = KeepGeneral(0.1), Ema(0.5)
    hook.loop = SimpleNamespace(best={}, save_best=lambda metrics, is_start: None)
    hook.on_start(run, training)
    hook.judge_best({"acc": 0.5}, 0)
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

    part = Loader.part

    def asking(loader, indices):  # first of the lines that choose
        loaders.append(AskInReading(part(loader, indices), 0 if loaders else reading, latest))
        return loaders[-1]

    monkeypatch.setattr(Loader, "part", asking)
    monkeypatch.setattr(keep_general, "_MOST_READ", math.inf)
    outcome = train(kept(**{"Eval.loader.batch_size_per_card": 2, "Global.ema": 0.9}))
    assert loaders[0].files[:2] == [False, saves]
    assert outcome.signal == signal.SIGINT
    assert outcome.position.global_step == (2 if saves else 0)


@pytest.mark.parametrize("eval_at_start", [True, False])
def test_a_training_that_gains_nothing_allowed_says_so(
    kept, forgetting, monkeypatch, tmp_path, weights, eval_at_start
):
    """Whatever the key says: without what the weights before read, weights that read fewer new lines were the best."""
    forgetting(0.1)
    monkeypatch.setattr(KeepGeneral, "_read", lambda hook, *what: {"acc": 0.52})
    real = KeepGeneral.judge_best

    def judge(hook, metrics, step):
        metrics["acc"] = 0.52 if step else 0.8
        return real(hook, metrics, step)

    monkeypatch.setattr(KeepGeneral, "judge_best", judge)
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
