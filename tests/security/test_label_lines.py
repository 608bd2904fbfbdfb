"""A line of a label file may be anything: it is read, or named with its number."""

from __future__ import annotations

from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.data.label_file import parse_line, read_label_file
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.errors import DataError
from ppocr_ext.limits import MAX_LABEL_LINE_BYTES, MAX_TEXT_BYTES
from ppocr_ext.messages import for_people


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
