"""Saves by time, and which checkpoints stay."""

import pytest
from error_codes import raises_code

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.files import names_in
from ppocr_ext.errors import ConfigError
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train


class Killed(BaseException):
    """Stands for a kill: nothing is saved after it."""


class KillAfter(Hook):
    def __init__(self, steps):
        self.steps = steps

    def on_step(self, step):
        if step.position.global_step == self.steps:
            raise Killed


@pytest.mark.e2e
def test_a_run_that_is_killed_in_its_first_epoch_leaves_its_last_save(tiny, tmp_path):
    def config(name, **values):
        return tiny("student", **{"Global.save_model_dir": str(tmp_path / name), **values})

    train(config("whole", **{"Global.save_minutes": 0, "Global.save_epoch_step": 1, "Global.keep_last": 1}))
    assert names_in(tmp_path / "whole")[-1] == "iter_epoch_2"
    assert not (tmp_path / "whole" / "iter_epoch_1.pdparams").exists()
    often = config("broken", **{"Global.save_minutes": 1e-9})
    with pytest.raises(Killed):
        train(often, hooks=[KillAfter(3)])
    assert Checkpoint(tmp_path / "broken" / "latest").train_state().position.global_step == 2
    with raises_code(ConfigError, "folder_holds_run"):
        train(often)
    with pytest.raises(Killed):
        train(often.with_values({"Global.save_minutes": 0}), hooks=[KillAfter(1)], overwrite=True)
    assert not names_in(tmp_path / "broken")
    assert not list((tmp_path / "broken").glob(".*"))
