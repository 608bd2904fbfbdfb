"""Warnings of usable data with which a training rarely succeeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.config import Config
from ppocr_ext.issues import Issue
from ppocr_ext.run.data_check import run_preflight
from ppocr_ext.run.frame_counts import FrameCounts

DIGITS = Charset(tuple("0123456789"))
Tiny = Callable[..., Config]


def flat(folder: Path, count: int) -> Path:
    """A label file of ``count`` images of one colour."""
    cv2.imwrite(str(folder / "flat.png"), np.full((32, 96, 3), 90, np.uint8))
    file = folder / "flat.txt"
    file.write_text("flat.png\t123456\n" * count)
    return file


def test_they_are_recorded_also_where_they_are_errors(tiny: Tiny, tmp_path: Path) -> None:
    values = {
        "Train.dataset.data_dir": str(tmp_path),
        "Train.dataset.label_file_list": [str(flat(tmp_path, 3))],
        "Global.strict": True,
    }
    record, frames = tmp_path / "preflight.json", {"Train": FrameCounts({})}
    with raises_code(Exception, "flat_image"):
        run_preflight(tiny("student", **values), DIGITS, frames, record)
    assert [warning["code"] for warning in json.loads(record.read_text())["warnings"]] == ["flat_image"]


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
        monkeypatch.setattr("ppocr_ext.run.data_check.MOST_READ", most)
        run_preflight(config, DIGITS, frames, report=said.append, warn=found.extend)
        assert [issue.code for issue in found] == ["trained_samples"]
        assert any("compared by path" in text for text in said) == (most == 24)
    run_preflight(config, DIGITS, {"Eval": FrameCounts({})}, report=said.append, warn=found.extend)
    assert len(found) == 1  # an evaluation alone compares nothing
