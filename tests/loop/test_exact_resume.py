"""A run that is stopped in mid-epoch and resumed is bit-identical to the unbroken one, whatever it draws."""

import json
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import DRAWING, StopAfter

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.config import Config
from ppocr_ext.inference.runners import engine_of
from ppocr_ext.loop.session import train
from ppocr_ext.run import compiled_models

TIMES = ("time", "ips", "fps")
Tiny = Callable[..., Config]


def content(folder: Path) -> dict[str, Any]:
    """Return what a run leaves behind, but for its times and for the names that Paddle generates."""
    latest = Checkpoint(folder / "latest")
    states = pickle.loads(latest.file(".states").read_bytes())
    del states["parameter_names"], states["files"]  # digests of files with such names
    states["best_model_dict"].pop("fps", None)
    lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": latest.weights(),
        "optimizer": list((latest.optimizer_state() or {}).values()),
        "states": states,
        "metrics": [{k: v for k, v in line.items() if k not in TIMES} for line in lines],
    }


STN = {
    "name": "STN_ON",
    "tps_inputsize": [32, 64],
    "tps_outputsize": [32, 128],
    "num_control_points": 8,
    "tps_margins": [0.05, 0.05],
    "stn_activation": "none",
}


@pytest.mark.e2e
@pytest.mark.parametrize(("kind", "stop"), [("student", 5), ("distill", 2)])
def test_a_resumed_run_is_bit_identical_to_the_unbroken_one(tiny, tmp_path, monkeypatch, kind, stop):
    """The resumed one loads its samples in two more processes; a window of four steps is stopped in its midst."""
    monkeypatch.setattr(compiled_models, "LEAST_WORK", 1)  # the teacher is compiled, as in a long run

    def config(name: str, **values: Any) -> Config:
        built = tiny(kind).thaw()
        transforms = built["Train"]["dataset"]["transforms"]
        losses = built["Loss"]["loss_config_list"]
        center = {"update": "ema", "frames": "aligned", "weight": 0.05}
        drawing = {
            "Global.save_model_dir": str(tmp_path / name),
            "Global.print_batch_step": 4,
            "Train.dataset.ext_op_transform_idx": 1,
            "Train.dataset.transforms": [transforms[0], *DRAWING, *transforms[1:]],
            "Loss.loss_config_list": [*losses, *([{"CenterLoss": center}] if kind == "student" else [])],
        }
        tps = {"name": "TPS", "num_fiducial": 8, "loc_lr": 0.1, "model_name": "small"}
        if kind == "student":
            drawing["Architecture.Transform"] = STN
        else:
            drawing |= {f"Architecture.Models.{model}.Transform": tps for model in ("Teacher", "Student")}
        return tiny(kind, **drawing, **values)

    train(config("whole"))
    outcome = train(config("broken", **{"Train.loader.num_workers": 2}), hooks=[StopAfter(stop)])
    assert (outcome.status, outcome.signal) == ("stopped", signal.SIGINT)
    before = content(tmp_path / "broken")["states"]
    train(config("broken", **{"Global.checkpoints": str(tmp_path / "broken" / "latest")}))
    whole, resumed = content(tmp_path / "whole"), content(tmp_path / "broken")
    for part in whole:
        np.testing.assert_equal(resumed[part], whole[part], err_msg=part)
    assert (before["epoch"], before["step_in_epoch"], before["global_step"]) == (*divmod(stop, 3), stop)
    assert bool(before["loss"]) == (kind == "student")  # the centers
    assert before.get("engines") == ({"Teacher": engine_of("auto")} if kind == "distill" else None)
    assert "other random numbers" not in (tmp_path / "broken" / "train.log").read_text()
    assert [line["step"] for line in whole["metrics"] if line["kind"] == "train"] == [4, 6]
