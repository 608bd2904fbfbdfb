"""Warnings of usable data with which a training rarely succeeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.issues import Issue
from ppocr_ext.run.datasets import run_preflight
from ppocr_ext.run.frame_counts import FrameCounts

DIGITS = Charset(tuple("0123456789"))
Tiny = Callable[..., Config]


def warnings_of(config: Config, frames: int = 16, **options: Any) -> list[Issue]:
    count = FrameCounts(
        {(32, 128): frames}, "Train.dataset.transforms.RecResizeImg.image_shape", True, **options
    )
    found: list[Issue] = []
    run_preflight(config, DIGITS, {"Train": count, "Eval": FrameCounts({})}, warn=found.extend)
    return found


def flat(folder: Path, count: int) -> Path:
    """A label file of ``count`` images of one colour."""
    cv2.imwrite(str(folder / "flat.png"), np.full((32, 96, 3), 90, np.uint8))
    file = folder / "flat.txt"
    file.write_text("flat.png\t123456\n" * count)
    return file


def test_good_data_give_none(tiny: Tiny) -> None:
    assert warnings_of(tiny("student")) == []


def test_images_without_text_are_named_where_the_data_come_from(tiny: Tiny, tmp_path: Path) -> None:
    values = {
        "Train.dataset.data_dir": str(tmp_path),
        "Train.dataset.label_file_list": [str(flat(tmp_path, 3))],
    }
    config = tiny("student", **values)
    (issue,) = warnings_of(config)
    assert (issue.code, issue.path) == ("flat_image", "Train.dataset.label_file_list")
    assert "3 of 3" in issue.message and "flat.txt:1" in issue.message
    record, frames = tmp_path / "preflight.json", {"Train": FrameCounts({})}
    with raises_code(Exception, "flat_image"):
        run_preflight(config.with_values({"Global.strict": True}), DIGITS, frames, record)
    assert [warning["code"] for warning in json.loads(record.read_text())["warnings"]] == ["flat_image"]


def test_fewer_frames_than_twice_the_longest_label(tiny: Tiny) -> None:
    config = tiny("student")  # labels of up to six digits
    (issue,) = warnings_of(config, 11)
    assert issue.code == "few_frames" and "11 frames" in issue.message and "1.1 times" in issue.message
    assert warnings_of(config, 12) == []
    fixed = "Architecture.Backbone.train_frames"
    (issue,) = warnings_of(config, 11, train_frames={fixed: 11}, fixed_by=(fixed,))
    assert f"`{fixed}: width`" in issue.message


def test_a_warm_up_of_more_steps_than_the_run(tiny: Tiny) -> None:
    rate = {"name": "LinearWarmupCosine", "learning_rate": 0.001, "warmup_steps": 6}
    config = tiny("student", **{"Optimizer.lr": rate})  # 24 samples in batches of 8, twice
    (issue,) = warnings_of(config)
    assert (issue.code, issue.path) == ("long_warm_up", "Optimizer.lr.warmup_steps")
    assert warnings_of(config.with_values({"Optimizer.lr.warmup_steps": 5})) == []
    assert (
        warnings_of(config.with_values({"Optimizer.lr": {**rate, "warmup_steps": None}}))[0].code
        == "long_warm_up"
    )


def test_config_check_shows_them(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        "Eval.dataset.data_dir": str(tmp_path),
        "Eval.dataset.label_file_list": [str(flat(tmp_path, 2))],
    }
    file = tmp_path / "my.yml"
    file.write_text(tiny("student", **values, **{"Global.dry_step": False}).to_yaml())
    for options, level, code in ([], "warning", 0), (["--strict"], "error", 2):
        assert main(["config", "--check", "-c", str(file), *options]) == code
        said = capsys.readouterr().out
        assert f"{level}: {file}:" in said and "Eval.dataset.label_file_list: 2 of 2" in said
        assert "no issues" not in said


def test_a_label_that_a_space_cuts_is_an_error_of_config_check(
    tiny: Tiny, tmp_path: Path, captchas: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (captchas / "train_list.txt").read_text().replace("\t", " ").splitlines()
    (tmp_path / "train.txt").write_text("\n".join([*lines[:-1], f"{lines[-1]} 80"]))
    values = {
        "Train.dataset.label_file_list": [str(tmp_path / "train.txt")],
        "Train.dataset.delimiter": " ",
        "Global.dry_step": False,
    }
    file = tmp_path / "my.yml"
    file.write_text(tiny("student", **values).to_yaml())
    assert main(["config", "--check", "-c", str(file)]) == 2
    said = capsys.readouterr().out
    assert f"error: {file}:" in said and "train.txt:24" in said and "[cut_label]" in said


def test_cut_labels_of_eval_are_named_there(tiny: Tiny, tmp_path: Path, captchas: Path) -> None:
    lines = (captchas / "val_list.txt").read_text().splitlines()
    (tmp_path / "val.txt").write_text("\n".join([f"{lines[0]}\t80", *lines[1:]]))
    config = tiny("student", **{"Eval.dataset.label_file_list": [str(tmp_path / "val.txt")]})
    (issue,) = warnings_of(config)
    assert (issue.level, issue.code, issue.path) == (
        "warning",
        "cut_label",
        "Eval.dataset.label_file_list",
    )
    (tmp_path / "val.txt").write_text("\n".join(f"{line}\t80" for line in lines))
    assert warnings_of(config) == []


def test_many_images_are_compared_by_path_alone(
    tiny: Tiny, tmp_path: Path, captchas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy is not found then, and that is said."""
    name, label = (captchas / "train_list.txt").read_text().splitlines()[0].split("\t")
    (tmp_path / "copy.png").write_bytes((captchas / name).read_bytes())
    (tmp_path / "val.txt").write_text(f"{tmp_path}/copy.png\t{label}\n")
    values = {"Eval.dataset.label_file_list": [str(tmp_path / "val.txt")]}
    config = tiny("student", **values, **{"Global.allow_outside_data_dir": True})
    frames, said, found = {"Train": FrameCounts({}), "Eval": FrameCounts({})}, list[str](), list[Issue]()
    for most in (25, 24):
        monkeypatch.setattr("ppocr_ext.run.data_warnings.MOST_READ", most)
        run_preflight(config, DIGITS, frames, report=said.append, warn=found.extend)
        assert [issue.code for issue in found] == ["trained_samples"]
        assert any("compared by path" in text for text in said) == (most == 24)
    run_preflight(config, DIGITS, {"Eval": FrameCounts({})}, report=said.append, warn=found.extend)
    assert len(found) == 1  # an evaluation alone compares nothing
