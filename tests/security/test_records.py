"""Records of a run that hold something else, or are something else than files, end in a note or an error by name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.limits import MAX_RECORD_BYTES, MAX_TEXT_BYTES, json_object, read_json_object, read_text
from ppocr_ext.loop.hooks.metrics_log import _lines_until
from ppocr_ext.report.run_folder import METRICS_FILE, metrics_line, read_metrics, read_runs
from ppocr_ext.report.run_page import write_report

LINE = {"kind": "train", "epoch": 1, "step": 2, "time": 0.5, "loss": 1.0, "losses": {"ctc": 1.0}}


def sparse(file: Path, size: int) -> Path:
    with file.open("wb") as stream:
        stream.truncate(size)
    return file


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = sparse(tmp_path / "sparse", 8 << 30)
    for read, limit in ((read_text, MAX_TEXT_BYTES), (read_json_object, MAX_RECORD_BYTES)):
        with pytest.raises(OSError, match=f"{limit:,}"):
            read(file)
    with raises_code(DataError, "unreadable_file", file, f"{MAX_TEXT_BYTES:,}"):
        read_predictions(file)
    with raises_code(DataError, "unreadable_file", file, f"{MAX_TEXT_BYTES:,}"):
        read_metrics(file)


@pytest.mark.parametrize(
    "text", ["[1]", "7", "null", "[" * 5000, '{"a": ' * 5000, "9" * 5000, "{", "\x00", ""]
)
def test_only_an_object_is_read_from_json(text: str) -> None:
    with pytest.raises(ValueError):
        json_object(text)


def test_an_object_is_read_from_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1, "未"]}', encoding="utf-8")
    assert read_json_object(tmp_path / "a.json") == {"a": [1, "未"]}


@pytest.mark.parametrize(
    "change",
    [
        {"losses": [1]},
        {"losses": 5},
        {"step": "2"},
        {"step": True},
        {"kind": []},
        {"time": "now"},
        {"time": None},
    ],
)
def test_a_line_of_other_types_is_no_line(tmp_path: Path, change: dict[str, object]) -> None:
    assert metrics_line(json.dumps(LINE)) == LINE and metrics_line(json.dumps({**LINE, "losses": None}))
    assert metrics_line(json.dumps({**LINE, **change})) == {}
    file = tmp_path / METRICS_FILE
    file.write_text(f"{json.dumps({**LINE, **change})}\n{json.dumps(LINE)}\n")
    with raises_code(DataError, "bad_content", f"{file}:1"):
        read_metrics(file)
    assert _lines_until(file, 5, 0) == [LINE]  # of a run that goes on


RECORDS = ("run.json", "metrics.jsonl", "preflight.json", "samples.json", "config.yml")
KINDS: dict[str, Callable[[Path], object]] = {
    "device": lambda file: file.symlink_to("/dev/zero"),
    "sparse": lambda file: sparse(file, 8 << 30),
    "list": lambda file: file.write_text("[1, 2]\n[1, 2]\n"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_written_without_files_that_cannot_be_read(
    project: Path, tmp_path: Path, kind: str
) -> None:
    run = Path(shutil.copytree(project / "run", tmp_path / "run"))
    for name in RECORDS:
        (run / name).unlink()
        KINDS[kind](run / name)
    (found,) = read_runs([run])
    for name in RECORDS:
        is_silent = name == "samples.json" and kind in ("device", "folder", "pipe")
        assert is_silent or any(name in note for note in found.notes), name
    write_report([run], tmp_path / "page.html", "")
    assert (tmp_path / "page.html").stat().st_size < 1 << 20
