"""Records of a run that hold something else, or are something else than files, end in a note or an error by name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.data.label_file import parse_line, read_label_file
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import read_predictions
from ppocr_ext.limits import (
    MAX_LABEL_LINE_BYTES,
    MAX_RECORD_BYTES,
    MAX_TEXT_BYTES,
    json_object,
    read_json_object,
    read_text,
)
from ppocr_ext.loop.hooks.metrics_log import _lines_until
from ppocr_ext.messages import for_people
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


@pytest.mark.parametrize("whole", ["run.json", "metrics.jsonl"])  # a run folder has one of them at least
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_written_without_files_that_cannot_be_read(
    project: Path, tmp_path: Path, kind: str, whole: str
) -> None:
    run = Path(shutil.copytree(project / "run", tmp_path / "run"))
    broken = [name for name in RECORDS if name != whole]
    for name in broken:
        (run / name).unlink()
        KINDS[kind](run / name)
    (found,) = read_runs([run])
    for name in broken:
        is_silent = name == "samples.json" and kind in ("device", "folder", "pipe")
        assert is_silent or any(name in note for note in found.notes), name
    write_report([run], tmp_path / "page.html", "")
    assert (tmp_path / "page.html").stat().st_size < 1 << 20


# A line of a label file may be anything: it is read, or named with its number


@pytest.mark.parametrize(
    "name", ["[" * 50_000, '{"a":' * 9_000, "[" + "1" * 5000 + "]", '["a.png", ' * 5_000]
)
def test_a_path_that_json_refuses_is_a_path(name: str) -> None:
    assert parse_line(1, f"{name}\t1".encode()).images == (name,)


def test_many_brackets_are_named_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"a.png\t1\n{'[' * 50_000}\t1\n{'[' * 100_000}\t1\n{'x' * 50_000}\n")
    report = check_label_files(tmp_path / "list.txt", tmp_path, SampleRules(Charset(("1",)), 5))
    found = {(sample.line, sample.reason) for sample in report.unusable_samples}
    assert found == {(1, "missing_image"), (2, "broken_image"), (3, "bad_format"), (4, "bad_format")}
    assert len(for_people(report.summary())) < 2500
    assert all(len(for_people(sample.detail)) < 2500 for sample in report.unusable_samples)


def test_a_line_is_read_up_to_a_limit_and_those_after_it_too(tmp_path: Path) -> None:
    longest = "a.png\t" + "1" * (MAX_LABEL_LINE_BYTES - 7)  # and the line end
    lines = [
        longest,
        longest + "1",
        "b.png\t2",
        "x" * (20 * MAX_LABEL_LINE_BYTES),
        "x" * (MAX_LABEL_LINE_BYTES + 1),
        "c.png\t3",
    ]
    (tmp_path / "list.txt").write_text("".join(f"{line}\n" for line in lines))
    read = list(read_label_file(tmp_path / "list.txt"))
    assert [line.number for line in read] == [1, 2, 3, 4, 5, 6]
    assert [line.issue is None for line in read] == [True, False, True, False, False, True]
    assert read[0].label == longest[6:] and read[2].label == "2" and read[5].label == "3"
    assert all(f"{MAX_LABEL_LINE_BYTES:,}" in (line.issue or "") for line in read if line.issue)


def test_a_line_without_an_end_is_not_read_to_the_end(tmp_path: Path) -> None:
    with (tmp_path / "list.txt").open("wb") as stream:
        stream.write(b"a.png\t1\n")
        stream.truncate(8 << 30)
    lines = read_label_file(tmp_path / "list.txt")
    assert next(lines).label == "1"
    with raises_code(DataError, "bad_content", tmp_path / "list.txt", f"{MAX_TEXT_BYTES:,}"):
        next(lines)


def test_a_file_without_line_ends_takes_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "list.txt").open("wb") as stream:
        stream.truncate(200_000_000)
    (line,) = read_label_file(tmp_path / "list.txt")
    assert line.issue and len(line.content) < 1000
