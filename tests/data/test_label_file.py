"""Label files: what is read from a line, and that what is written reads back."""

from __future__ import annotations

import pytest
from error_codes import raises_code

from ppocr_ext.data.label_file import parse_line, read_label_file, write_label_file
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


@pytest.mark.parametrize(
    ("text", "spaced"), [("a/b.jpg word", True), ("a b.jpg", False), ("a.jpg", False), ("words alone", False)]
)
def test_a_space_where_the_delimiter_should_be(text, spaced):
    issue = parse_line(1, text.encode()).issue
    assert repr(text) in issue and ("space" in issue) == spaced


def test_written_rows_read_back(tmp_path):
    rows = [("a b.jpg", "x,y"), ("c.jpg", " ")]
    assert write_label_file(tmp_path / "sub" / "list.txt", rows) == 2
    assert [(line.images[0], line.label) for line in read_label_file(tmp_path / "sub" / "list.txt")] == rows


@pytest.mark.parametrize("row", [("a\tb.jpg", "x"), ("a.jpg", "x\ny"), ("a.jpg", "")])
def test_rows_that_would_not_read_back_are_refused_and_leave_nothing(tmp_path, row):
    with raises_code(DataError, "bad_value", "row 2"):
        write_label_file(tmp_path / "list.txt", [("good.jpg", "x"), row])
    assert list(tmp_path.iterdir()) == []
