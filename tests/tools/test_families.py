"""The experiment that trains configs of users: what it replaces in them, and that it goes on after a failure."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml
from experiments.families import run_experiment, values_for, write_lists
from experiments.runs import RunFailedError
from tiny_runs import captchas, tiny

from ppocr_ext.config import Config

__all__ = ["captchas", "tiny"]  # fixtures


def arguments(folder: Path, captchas: Path, configs: list[Path]) -> argparse.Namespace:
    lines = (captchas / "train_list.txt").read_text().splitlines()
    (captchas / "families.txt").write_text("\n".join([*lines, *lines][:40]))
    data = captchas / "families.txt"
    return argparse.Namespace(configs=configs, data=data, out=folder / "out", steps=2, batch=4, opt=[])


def test_data_and_weights_of_a_config_are_replaced_and_nothing_else(tmp_path: Path, captchas: Path) -> None:
    models = {"Teacher": {"pretrained": "a"}, "Student": {"pretrained": "b", "algorithm": "CRNN"}}
    config = Config(
        {
            "Global": {"use_gpu": True, "max_text_length": 9, "pretrained_model": "c"},
            "Architecture": {"Models": models},
            "Optimizer": {"lr": {"name": "Cosine", "warmup_epoch": 5}},
            "Train": {
                "dataset": {"name": "LMDBDataSet", "ratio_list": [0.1, 0.9], "data_dir": "d"},
                "loader": {},
            },
            "Eval": {"dataset": {"name": "SimpleDataSet", "transforms": []}, "loader": {}},
        }
    )
    args = arguments(tmp_path, captchas, [])
    changed = config.with_values(values_for(config, args))
    assert changed.at("Global.max_text_length") == 9 and changed.at("Optimizer.lr.name") == "Cosine"
    assert changed.at("Architecture.Models.Student.algorithm") == "CRNN"
    assert not any(changed.at(f"Architecture.Models.{name}.pretrained") for name in models)
    assert (changed.at("Global.use_gpu"), changed.at("Optimizer.lr.warmup_epoch")) == (False, 0)
    assert changed.at("Train.dataset.name") == "SimpleDataSet" and changed.at("Train.dataset.ratio_list") == (
        1.0,
    )
    write_lists(args)
    assert len(Path(changed.at("Train.dataset.label_file_list.0")).read_text().splitlines()) == 2 * 4
    assert Path(changed.at("Global.character_dict_path")).is_file()


@pytest.mark.e2e
def test_a_config_that_fails_is_named_and_the_next_one_follows(
    tmp_path: Path, captchas: Path, tiny: Any
) -> None:
    wrong, right = tmp_path / "wrong.yml", tmp_path / "right.yml"
    right.write_text(yaml.safe_dump(tiny("student").thaw()))
    wrong.write_text(yaml.safe_dump(tiny("student", **{"Loss.name": "NoSuchLoss"}).thaw()))
    with pytest.raises(RunFailedError):
        run_experiment(arguments(tmp_path, captchas, [wrong, right]))
    rows = (tmp_path / "out" / "results.md").read_text().splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| `wrong`", "| `right`"]
    assert "failed" in rows[0] and "train" in rows[0]
    assert rows[1].endswith("| yes | the run, ONNX Runtime, Paddle |")
