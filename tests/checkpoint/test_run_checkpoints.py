"""What a run folder holds: saves that belong together, leftovers of kills, the newest checkpoints."""

import os
import shutil
import subprocess
import sys

import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint import checkpoints
from ppocr_ext.checkpoint.checkpoints import Checkpoint, Position, TrainState, write_checkpoint
from ppocr_ext.checkpoint.files import (
    finish_saves,
    keep_newest,
    names_in,
    remove_checkpoints,
    write_temporary,
)
from ppocr_ext.checkpoint.weights import load_weights
from ppocr_ext.errors import WeightsError


def save(prefix, step=1):
    layer = paddle.nn.Linear(2, 2)
    optimizer = paddle.optimizer.Momentum(parameters=layer.parameters())
    layer(paddle.ones([1, 2]) * step).sum().backward()
    optimizer.step()
    write_checkpoint(prefix, layer.state_dict(), optimizer, TrainState(Position(0, step, step)))
    return layer


@pytest.mark.parametrize("ending", [".pdparams", ".pdopt"])
def test_files_of_two_saves_are_refused_by_name(tmp_path, ending):
    save(tmp_path / "latest", 1)
    save(tmp_path / "best_accuracy", 2)
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
    save(tmp_path / "latest", 1)
    with monkeypatch.context() as patch:  # killed between the journal and the renames
        patch.setattr(checkpoints, "finish_journal", lambda prefix: None)
        save(tmp_path / "best_accuracy", 2)
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
        save(tmp_path / name)
    keep_newest(tmp_path, "latest", 1)
    assert len(names_in(tmp_path)) == 6
    keep_newest(tmp_path, "iter_epoch_10", 2)  # a run that went back to epoch 4 will write epoch 12 again
    assert names_in(tmp_path) == ["latest", "best_accuracy", "iter_epoch_10", "iter_epoch_12", "iter_epoch_4"]
    assert not list(tmp_path.glob("iter_epoch_2.*"))
    remove_checkpoints(tmp_path, names_in(tmp_path))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        f"mine{e}" for e in (".pdopt", ".pdparams", ".states")
    ]
