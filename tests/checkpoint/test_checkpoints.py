"""Checkpoints: their files, what a resume takes from them, kills in the middle of a save, and which ones stay."""

import json
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import paddle
import pytest
from error_codes import raises_code
from paddle.base.layer_helper import LayerHelper

from ppocr_ext.checkpoint import checkpoints, files
from ppocr_ext.checkpoint.checkpoints import Checkpoint, Position, TrainState, write_checkpoint
from ppocr_ext.checkpoint.files import (
    finish_saves,
    keep_newest,
    names_in,
    read_state,
    remove_checkpoints,
    write_temporary,
)
from ppocr_ext.checkpoint.optimizer_state import restore_optimizer
from ppocr_ext.checkpoint.weights import load_weights, parameter_names
from ppocr_ext.errors import WeightsError


def trained(steps=3, seed=0):
    paddle.seed(seed)
    layer = paddle.nn.Linear(3, 2)
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.1, 50)
    optimizer = paddle.optimizer.AdamW(learning_rate=schedule, parameters=layer.parameters())
    advance(layer, optimizer, schedule, steps)
    return layer, optimizer, schedule


def advance(layer, optimizer, schedule, steps):
    for i in range(steps):
        (layer(paddle.ones([1, 3])) * (i + 1)).square().sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()


def test_files_have_the_names_and_keys_of_paddleocr_and_what_a_resume_needs_comes_back(tmp_path):
    """PaddleOCR loads weights and optimizer with `paddle.load`, and takes two keys out of the states."""
    layer, optimizer, _ = trained()
    state = TrainState(
        Position(2, 5, 25), {"acc": 0.5}, {"a": "linear_0.w_0"}, {"Teacher": "d"}, 9, "Adam", {}, {}, "c"
    )
    write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, state)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest.pdopt", "latest.pdparams", "latest.states"]
    states = paddle.load(str(tmp_path / "latest.states"))
    assert (states["epoch"], states["global_step"], states["best_model_dict"]) == (2, 25, {"acc": 0.5})
    weights = paddle.load(str(tmp_path / "latest.pdparams"))
    assert set(weights) == {"weight", "bias"} and (weights["weight"] == layer.weight).all()
    assert paddle.load(str(tmp_path / "latest.pdopt"))
    assert Checkpoint(tmp_path / "latest").train_state() == state


def test_training_goes_on_as_if_never_stopped_in_a_process_with_other_names(tmp_path):
    layer, optimizer, schedule = trained(3)
    write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 3, 3)))
    saved = parameter_names(layer)
    advance(layer, optimizer, schedule, 4)

    paddle.nn.Linear(5, 5)  # shifts the names that Paddle generates
    other, other_optimizer, other_schedule = trained(0, seed=9)
    assert parameter_names(other) != saved
    other.set_state_dict(
        {k: paddle.to_tensor(v) for k, v in read_state(tmp_path / "latest.pdparams").items()}
    )
    now = parameter_names(other)
    restore_optimizer(other_optimizer, Checkpoint(tmp_path / "latest"), now, saved)
    advance(other, other_optimizer, other_schedule, 4)
    np.testing.assert_allclose(other.weight.numpy(), layer.weight.numpy(), rtol=1e-6)
    assert other_optimizer.get_lr() == pytest.approx(optimizer.get_lr())


def test_a_first_gradient_may_come_in_the_first_step_after_a_resume(tmp_path):
    def built():
        paddle.seed(0)
        layers = paddle.nn.LayerList([paddle.nn.Linear(2, 1), paddle.nn.Linear(2, 1)])
        return layers, paddle.optimizer.AdamW(0.1, parameters=layers.parameters())

    def take_step(used, optimizer):
        sum(layer(paddle.ones([1, 2])).square() for layer in used).sum().backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)

    layers, optimizer = built()
    take_step(layers[1:], optimizer)
    write_checkpoint(tmp_path / "latest", layers.state_dict(), optimizer, TrainState(Position(0, 1, 1)))
    others, other_optimizer = built()
    checkpoint = Checkpoint(tmp_path / "latest")
    others.set_state_dict({name: paddle.to_tensor(value) for name, value in checkpoint.weights().items()})
    restore_optimizer(other_optimizer, checkpoint, parameter_names(others), parameter_names(layers))
    for each, own in ((layers, optimizer), (others, other_optimizer)):
        take_step(each, own)
        take_step(each, own)
    for name, value in layers.state_dict().items():
        np.testing.assert_array_equal(others.state_dict()[name].numpy(), value.numpy(), err_msg=name)


def test_fields_of_features_that_are_gone_are_left_out():
    states = {"epoch": 7, "global_step": 70, "rate_factor": 0.25}
    assert TrainState.from_dict(states) == TrainState(Position(7, 0, 70))


def test_a_checkpoint_of_paddleocr_is_read(tmp_path):
    kwargs = {"best_model_dict": {"acc": 0.25, "start_epoch": 1}, "epoch": 7, "global_step": 70}
    (tmp_path / "latest.states").write_bytes(pickle.dumps(kwargs, protocol=2))
    state = Checkpoint(tmp_path / "latest").train_state()
    assert (state.position, state.best) == (Position(7, 0, 70), {"acc": 0.25})


@pytest.mark.parametrize("renames_done", [0, 1, 2, 3])
def test_a_save_that_was_killed_is_finished_by_the_next_reader(tmp_path, monkeypatch, renames_done):
    layer, optimizer, schedule = trained(1)
    write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 1, 1)))
    advance(layer, optimizer, schedule, 1)
    monkeypatch.setattr(checkpoints, "finish_journal", lambda prefix: None)
    write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 2, 2)))
    monkeypatch.undo()
    renames = json.loads((tmp_path / "latest.journal").read_text())
    for temporary, final in list(renames.items())[:renames_done]:
        (tmp_path / temporary).replace(tmp_path / final)
    checkpoint = Checkpoint(tmp_path / "latest")
    assert checkpoint.train_state().position.global_step == 2
    np.testing.assert_array_equal(checkpoint.weights()["weight"], layer.weight.numpy())
    left = [".journal", ".pdopt", ".pdparams", ".states"]  # the next save takes the journal away
    assert sorted(p.suffix for p in tmp_path.iterdir()) == left
    write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 3, 3)))
    assert sorted(p.suffix for p in tmp_path.iterdir()) == left[1:]


def test_a_reader_leaves_the_journal_of_a_save_that_began_after_it_looked(tmp_path, monkeypatch):
    layer, optimizer, _ = trained(1)

    def killed_save(step):
        with monkeypatch.context() as patch:  # between the journal and the renames
            patch.setattr(checkpoints, "finish_journal", lambda prefix: None)
            write_checkpoint(
                tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, step, step))
            )

    def read_before_the_next_save(prefix):
        renames = real(prefix)
        monkeypatch.setattr(files, "read_journal", real)
        killed_save(2)
        return renames

    killed_save(1)
    real = files.read_journal
    monkeypatch.setattr(files, "read_journal", read_before_the_next_save)
    assert Checkpoint(tmp_path / "latest").train_state().position.global_step == 1
    assert Checkpoint(tmp_path / "latest").train_state().position.global_step == 2


def test_killed_before_the_journal_the_old_checkpoint_stands(tmp_path, monkeypatch):
    layer, optimizer, schedule = trained(1)
    write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 1, 1)))
    before = layer.weight.numpy().copy()
    advance(layer, optimizer, schedule, 1)

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 2, 2)))
    checkpoint = Checkpoint(tmp_path / "latest")
    assert checkpoint.train_state().position.global_step == 1
    np.testing.assert_array_equal(checkpoint.weights()["weight"], before)


def test_a_save_that_fails_leaves_no_temporary_file(tmp_path, monkeypatch):
    layer, optimizer, _ = trained(1)
    real = files.write_temporary

    def write(path, content):
        if path.suffix == ".pdopt":
            raise OSError("No space left on device")
        return real(path, content)

    monkeypatch.setattr(files, "write_temporary", write)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 1, 1)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", ["", ".pdparams", ".pdopt", ".states"])
def test_a_checkpoint_is_named_with_or_without_any_of_its_endings(ending):
    assert str(Checkpoint(f"run/best_accuracy{ending}").prefix) == "run/best_accuracy"


@pytest.mark.parametrize("wrapper", ["", "module.", "_layers."])
def test_the_sub_models_of_a_checkpoint_are_known_by_its_names(tmp_path, wrapper):
    names = ("Student.head.fc", "Teacher.head.fc")
    paddle.save({wrapper + name: paddle.ones([1]) for name in names}, str(tmp_path / "a.pdparams"))
    assert Checkpoint(tmp_path / "a").models() == {"Student", "Teacher"}


def test_a_checkpoint_of_paddleocr_resumes_by_the_names_in_its_weights(tmp_path):
    layer, optimizer, schedule = trained(3)
    paddle.save(layer.state_dict(), str(tmp_path / "latest.pdparams"))  # as PaddleOCR's save_model does
    paddle.save(optimizer.state_dict(), str(tmp_path / "latest.pdopt"))
    advance(layer, optimizer, schedule, 2)

    paddle.nn.Linear(5, 5)  # shifts the names that Paddle generates
    other, other_optimizer, other_schedule = trained(0, seed=9)
    other.set_state_dict(
        {k: paddle.to_tensor(v) for k, v in read_state(tmp_path / "latest.pdparams").items()}
    )
    restore_optimizer(other_optimizer, Checkpoint(tmp_path / "latest"), parameter_names(other), None)
    advance(other, other_optimizer, other_schedule, 2)
    np.testing.assert_allclose(other.weight.numpy(), layer.weight.numpy(), rtol=1e-6)


def in_16_bits(layer):
    """An optimizer over ``layer``, which is cast; a CPU has no step for it."""
    layer.to(dtype="bfloat16")  # `layer.bfloat16()` leaves float32 on a processor without bfloat16
    assert {each.dtype for each in layer.parameters()} == {paddle.bfloat16}
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.1, 50)
    return paddle.optimizer.AdamW(schedule, parameters=layer.parameters(), multi_precision=True)


def first_step(optimizer):
    """Make or take up masters and moments, as the first step does."""
    block = paddle.static.default_main_program().global_block()
    optimizer.helper = LayerHelper(type(optimizer).__name__)  # as Paddle 2.6 does in a step
    optimizer._create_accumulators(block, optimizer._parameter_list)


def moments(optimizer, layer):
    """First moments by the weight's name in the model."""
    kept = optimizer._accumulators["moment1"]
    masters = optimizer._master_weights
    return {
        name: kept[masters[p.name].name if p.name in masters else p.name].numpy()
        for name, p in layer.named_parameters()
    }


def test_master_weights_and_their_moments_come_back_under_other_names(tmp_path):
    layer = paddle.nn.Linear(3, 2)
    exact = {name: p.numpy().copy() for name, p in layer.named_parameters()}
    optimizer = in_16_bits(layer)
    first_step(optimizer)
    for name, p in layer.named_parameters():
        optimizer._master_weights[p.name].set_value(paddle.to_tensor(exact[name]))
    for value in optimizer._accumulators["moment1"].values():
        value.set_value(paddle.full_like(value, 0.25))
    write_checkpoint(tmp_path / "latest", layer.state_dict(), optimizer, TrainState(Position(0, 3, 3)))
    saved = parameter_names(layer)

    paddle.nn.Linear(5, 5)  # shifts the names that Paddle generates
    other = paddle.nn.Linear(3, 2)
    other_optimizer = in_16_bits(other)
    restore_optimizer(other_optimizer, Checkpoint(tmp_path / "latest"), parameter_names(other), saved)
    first_step(other_optimizer)
    for name, p in other.named_parameters():
        np.testing.assert_array_equal(other_optimizer._master_weights[p.name].numpy(), exact[name])
        assert (moments(other_optimizer, other)[name] == 0.25).all()


def test_a_run_without_16_bits_goes_on_with_them_and_the_other_way_round(tmp_path):
    layer, optimizer, _ = trained(3)
    write_checkpoint(tmp_path / "full", layer.state_dict(), optimizer, TrainState(Position(0, 3, 3)))
    saved = parameter_names(layer)
    exact, known = {n: p.numpy().copy() for n, p in layer.named_parameters()}, moments(optimizer, layer)

    half = paddle.nn.Linear(3, 2)
    half_optimizer = in_16_bits(half)
    names = parameter_names(half)
    restore_optimizer(half_optimizer, Checkpoint(tmp_path / "full"), names, saved)
    first_step(half_optimizer)
    for name, p in half.named_parameters():
        np.testing.assert_array_equal(half_optimizer._master_weights[p.name].numpy(), exact[name])
        np.testing.assert_array_equal(moments(half_optimizer, half)[name], known[name])
    write_checkpoint(tmp_path / "half", layer.state_dict(), half_optimizer, TrainState(Position(0, 3, 3)))

    back, back_optimizer, _ = trained(0, seed=9)
    restore_optimizer(back_optimizer, Checkpoint(tmp_path / "half"), parameter_names(back), names)
    advance(back, back_optimizer, back_optimizer._learning_rate, 1)
    assert not back_optimizer._master_weights


def save_step(prefix, step=1):
    layer = paddle.nn.Linear(2, 2)
    optimizer = paddle.optimizer.Momentum(parameters=layer.parameters())
    layer(paddle.ones([1, 2]) * step).sum().backward()
    optimizer.step()
    write_checkpoint(prefix, layer.state_dict(), optimizer, TrainState(Position(0, step, step)))
    return layer


@pytest.mark.parametrize("ending", [".pdparams", ".pdopt"])
def test_files_of_two_saves_are_refused_by_name(tmp_path, ending):
    save_step(tmp_path / "latest", 1)
    save_step(tmp_path / "best_accuracy", 2)
    latest = Checkpoint(tmp_path / "latest")
    assert latest.train_state().position.global_step == 1 and latest.optimizer_state()
    shutil.copy(tmp_path / f"best_accuracy{ending}", latest.file(ending))
    with raises_code(
        WeightsError, "mixed_checkpoint", latest.file(ending), "latest.states", "pretrained_model"
    ):
        latest.train_state()
        latest.optimizer_state()
    assert load_weights(paddle.nn.Linear(2, 2), latest.prefix).matched  # the remedy of the message
    latest.file(".states").unlink()
    assert latest.train_state() == TrainState()


def test_what_killed_saves_left_goes_and_nothing_else(tmp_path, monkeypatch):
    save_step(tmp_path / "latest", 1)
    with monkeypatch.context() as patch:  # killed between the journal and the renames
        patch.setattr(checkpoints, "finish_journal", lambda prefix: None)
        save_step(tmp_path / "best_accuracy", 2)
    write_temporary(tmp_path / "latest.pdparams", b"killed before the journal")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f".run.json.{ended.pid}.tmp").write_text("{")
    stay = [f".report.html.{os.getpid()}.tmp", ".mine.tmp", "notes.tmp", ".swap.Abcdefgh.tmp", "train.log"]
    for name in stay:
        (tmp_path / name).write_text("")
    finish_saves(tmp_path)
    weights = [f"{name}{ending}" for name in ("latest", "best_accuracy") for ending in checkpoints.ENDINGS]
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([*stay, *weights])
    assert Checkpoint(tmp_path / "best_accuracy").train_state().position.global_step == 2


def test_the_newest_checkpoints_stay(tmp_path):
    for name in ("latest", "best_accuracy", "mine", *(f"iter_epoch_{epoch}" for epoch in (2, 4, 10, 12))):
        save_step(tmp_path / name)
    keep_newest(tmp_path, "latest", 1)
    assert len(names_in(tmp_path)) == 6
    keep_newest(tmp_path, "iter_epoch_10", 2)  # a run that went back to epoch 4 will write epoch 12 again
    assert names_in(tmp_path) == ["latest", "best_accuracy", "iter_epoch_10", "iter_epoch_12", "iter_epoch_4"]
    assert not list(tmp_path.glob("iter_epoch_2.*"))
    remove_checkpoints(tmp_path, names_in(tmp_path))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        f"mine{e}" for e in (".pdopt", ".pdparams", ".states")
    ]
