"""Label files: what is read from a line, and that what is written reads back."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.data.label_file import parse_line, read_label_file, write_label_file
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.preflight_report import FurtherColumns
from ppocr_ext.data.sample_rules import ImageCheck, SampleRules
from ppocr_ext.errors import DataError


def test_lines_have_their_number_path_and_label(tmp_path):
    file = tmp_path / "list.txt"
    file.write_bytes("a.jpg\t苹果\nb/c.png\tx y\n".encode())
    lines = list(read_label_file(file))
    assert [(line.number, line.images, line.label, line.issue) for line in lines] == [
        (1, ("a.jpg",), "苹果", None),
        (2, ("b/c.png",), "x y", None),
    ]


@pytest.mark.parametrize("name", ["[1].jpg", "[]"])
def test_a_path_that_only_looks_like_a_list_is_a_path(name):
    assert parse_line(1, f"{name}\tword".encode()).images == (name,)


def test_other_delimiter_and_ignored_columns():
    line = parse_line(1, b"a.jpg,word,320,48", ",")
    assert (line.images, line.label, line.extra) == (("a.jpg",), "word", ("320", "48"))


def test_byte_order_mark_and_carriage_return_are_removed_and_noted():
    line = parse_line(1, b"\xef\xbb\xbfa.jpg\tword\r\n")
    assert (line.images, line.label, line.altered) == (("a.jpg",), "word", True)
    assert line.content == b"a.jpg\tword"
    assert not parse_line(2, b"a.jpg\tword\n").altered


@pytest.mark.parametrize(
    "raw",
    [
        b"\n",
        b"  \n",
        b"a.jpg word\n",
        b"\tword\n",
        b"[1, 2]\tword\n",
        b"a.jpg\t\xff\xfe\n",
        b"a.jpg\tword\rb.jpg\tword\r\n",
        b'a.jpg\t[{"transcription": "word", "points": [[0, 0], [9, 0], [9, 9], [0, 9]]}]\n',
        b'a.jpg\t[{"points": [[0, 0], [9, 0], [9, 9], [0, 9]], "transcription": "word"}]\n',
    ],
)
def test_a_line_that_cannot_be_read_has_an_issue_and_no_columns(raw):
    line = parse_line(5, raw)
    assert line.issue is not None
    assert (line.images, line.label, line.extra) == ((), "", ())


@pytest.mark.parametrize(
    ("line", "delimiter", "found"),
    [
        (r"a.jpg\tword", "\t", r'"\\t"'),
        ("b.c/1 2.JPG/tword", "\t", '"/t"'),
        ("a.png word", "\t", '" "'),
        ("d.b/test 1.png,word", "\t", '","'),
        ("a b.jpg", "\t", None),
        ("a.jpg\tword", r"\t", r'"\t"'),  # YAML keeps both letters of '\t' in single quotes
        (".jpg" * 100_000, "\t", None),
        ("word", "\t", None),
    ],
)
def test_what_stands_in_place_of_the_delimiter_is_named(line, delimiter, found):
    issue = parse_line(1, line.encode(), delimiter).issue
    assert issue is not None and (f"delimiter: {found}`" in issue if found else "delimiter:" not in issue)


@pytest.mark.parametrize(
    ("columns", "good"),
    [
        ("320\t48", True),
        ("320", False),
        ("320\t0", False),
        ("w\th", False),
        ("1\t2\t3", False),
        ("nan\t4", False),
    ],
)
def test_ds_width_asks_for_width_and_height(columns, good):
    line = parse_line(1, f"a.jpg\tword\t{columns}\n".encode(), ds_width=True)
    assert (line.issue is None) == good


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with raises_code(DataError, "missing_file", str(tmp_path / "none.txt")):
        list(read_label_file(tmp_path / "none.txt"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_one_error(tmp_path, encoding):
    file = tmp_path / "list.txt"
    file.write_bytes("\ufeffa.jpg\tword\nb.jpg\tword\n".encode(encoding))
    with raises_code(DataError, "bad_encoding", "list.txt"):
        list(read_label_file(file))


def test_written_rows_read_back(tmp_path):
    rows = [("a b.jpg", "x,y"), ("c.jpg", " ")]
    assert write_label_file(tmp_path / "sub" / "list.txt", rows) == 2
    assert [(line.images[0], line.label) for line in read_label_file(tmp_path / "sub" / "list.txt")] == rows


@pytest.mark.parametrize("row", [("a\tb.jpg", "x"), ("a.jpg", "x\ny"), ("a.jpg", "")])
def test_rows_that_would_not_read_back_are_refused_and_leave_nothing(tmp_path, row):
    with raises_code(DataError, "bad_value", "row 2"):
        write_label_file(tmp_path / "list.txt", [("good.jpg", "x"), row])
    assert list(tmp_path.iterdir()) == []


# Labels that a delimiter cuts off are told from columns of numbers, in plain blocks and line by line

DIGITS = Charset(tuple('0123456789"'))


def further(
    folder: Path, rests: list[str], check: ImageCheck = "header", delimiter: str = "\t", begin: str = "12"
) -> FurtherColumns:
    """What is found for lines with these texts after the label ``12``, or another begin of it."""
    cv2.imwrite(str(folder / "a.png"), np.full((8, 24, 3), 200, np.uint8))
    file = folder / "list.txt"
    file.write_bytes("".join(f"a.png{delimiter}{begin}{rest}\n" for rest in rests).encode())
    report = check_label_files(file, folder, SampleRules(DIGITS, 5, image_check=check), delimiter=delimiter)
    return report.files[0].further


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("delimiter", ["\t", "::", " "])
def test_what_is_cut_off(tmp_path: Path, check: ImageCheck, delimiter: str) -> None:
    rests = (
        [""] * 70
        + [f"{delimiter}80", "", f"{delimiter}中{delimiter}x\r", f"{delimiter}", f"{delimiter}1"]
        + [f"{delimiter}9"] * 9
    )
    found = further(tmp_path, rests, check, delimiter)
    # a delimiter at the end of a line cuts nothing off
    assert (found.kinds, found.counts) == ({0, 1, -1}, {"cut_label": 12})
    rests = ["80", f"中{delimiter}x", "1"]
    assert found.examples == [
        ("cut_label", at, "12", rest) for at, rest in zip((71, 73, 75), rests, strict=True)
    ]


@pytest.mark.parametrize(
    ("rests", "kinds"),
    [
        (["", ""], {0}),
        (["\t0.98", "\t-1e-5", "\t", "\t 7 "], {1}),
        (["\t1\t2.5", "\t.5\t3."], {2}),
        (["\t1", ""], {0, 1}),
        (["\t1", "\t1\t2"], {1, 2}),
        (["\t1-2"], {-1}),
        (["\tnan"], {-1}),
    ],
)
def test_columns_of_numbers(tmp_path: Path, rests: list[str], kinds: set[int]) -> None:
    assert further(tmp_path, rests).kinds == kinds


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("delimiter", [",", ";", "::"])
def test_labels_in_quotes(tmp_path: Path, check: ImageCheck, delimiter: str) -> None:
    rests = ['12"', f'1{delimiter} with it"', "", *['3"'] * 70]  # the third label is a quotation mark
    found = further(tmp_path, rests, check, delimiter, '"')
    assert found.counts == {"quoted_label": 72}
    assert [each[1:] for each in found.examples] == [(1, '"12"', ""), (2, '"1', ' with it"'), (4, '"3"', "")]


def test_quotes_are_text_where_a_tab_separates(tmp_path: Path) -> None:
    found = further(tmp_path, ['2"', '1\tx"'], begin='"')
    assert found.examples == [("cut_label", 2, '"1', 'x"')]


def test_lines_that_cannot_be_used_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    cv2.imwrite(str(tmp_path / "a.png"), np.full((8, 24, 3), 200, np.uint8))
    file.write_text("path,label,score\n" + "a.png,12,0.9\n" * 3 + "a.png\n")
    report = check_label_files(file, tmp_path, SampleRules(DIGITS, 5), delimiter=",")
    assert (report.usable, report.files[0].further.kinds) == (3, {1})
