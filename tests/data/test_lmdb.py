"""LMDBs: the same rules for samples as for lines, and a number of samples that is wrong."""

from __future__ import annotations

import lmdb
import pytest
from error_codes import raises_code
from lmdb_files import IMAGE, write_lmdb

from ppocr_ext.charset import Charset
from ppocr_ext.data.lmdb_sets import open_sets
from ppocr_ext.data.preflight import check_lmdbs
from ppocr_ext.data.preflight_report import UnusableLimit, limit_errors
from ppocr_ext.data.sample_rules import FrameLimit, SampleRules
from ppocr_ext.errors import DataError

DIGITS = Charset(tuple("0123456789"))


def test_each_reason_with_its_index(tmp_path):
    damaged = bytearray(IMAGE)
    at = damaged.index(b"IDAT")
    damaged[at + 4 : at + 12] = b"\xff" * 8
    images = {3: IMAGE[:30], 4: None, 5: b"", 9: bytes(damaged)}
    labels = ["12", "1x", "3", "4", "5", "", "1234567", b"\xff", "9", "12"]
    folder = write_lmdb(tmp_path / "a", labels, images=images)
    result = check_lmdbs(folder, SampleRules(DIGITS, 6))
    assert [(f.file, f.line, f.reason) for f in result.unusable_samples] == [
        (folder, 2, "unknown_char"),
        (folder, 3, "broken_image"),
        (folder, 4, "missing_image"),
        (folder, 5, "broken_image"),
        (folder, 6, "empty_label"),
        (folder, 7, "too_long"),
        (folder, 8, "bad_format"),
    ]
    assert result.files[0].usable_array().tolist() == [True, *[False] * 7, True, True]
    assert f"{folder}#2" in result.summary() and "3 of 10" in result.summary()
    decoded = check_lmdbs(folder, SampleRules(DIGITS, 6, image_check="decode"))
    assert (9, "broken_image") in [(f.line, f.reason) for f in decoded.unusable_samples]


def test_gtc_and_frames_hold_for_samples_too(tmp_path):
    folder = write_lmdb(tmp_path / "a", ["1234", "111", "12"])
    result = check_lmdbs(folder, SampleRules(DIGITS, 5, gtc="nrtr", frames=FrameLimit(4)))
    assert [(f.line, f.reason) for f in result.unusable_samples] == [
        (1, "too_long"),
        (2, "too_long_for_frames"),
    ]
    error, fix = limit_errors({"Train": result}, UnusableLimit(0.1))
    assert "Global.max_unusable=0.67" in fix
    assert f"{folder}#1" in error and "Global.max_text_length: 6" in error


def test_several_lmdbs_in_the_order_of_their_paths(tmp_path):
    for name, count in (("b", 2), ("a", 1), ("c/deep", 3)):
        write_lmdb(tmp_path / name, ["1"] * count)
    assert [(s.path, s.count) for s in open_sets(tmp_path)] == [
        (tmp_path / "a", 1),
        (tmp_path / "b", 2),
        (tmp_path / "c/deep", 3),
    ]
    assert check_lmdbs(tmp_path, SampleRules(DIGITS, 5)).usable == 6


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda folder: None, "missing_folder"),
        (lambda folder: folder.mkdir(), "not_an_lmdb"),
        (
            lambda folder: (folder.mkdir(), (folder / "data.mdb").write_text("text")),
            "damaged_file",
        ),
        (lambda folder: write_lmdb(folder, ["1", "2"], count=3), "bad_num_samples"),
        (lambda folder: write_lmdb(folder, ["1", "2"], count=1), "bad_num_samples"),
        (lambda folder: write_lmdb(folder, [], count="many"), "bad_num_samples"),
        (lambda folder: write_lmdb(folder, [], count=0), "bad_num_samples"),
    ],
)
def test_what_is_not_an_lmdb_of_text_lines_is_an_error(tmp_path, make, code):
    make(tmp_path / "a")
    with raises_code(DataError, code, str(tmp_path / "a")):
        check_lmdbs(tmp_path / "a", SampleRules(DIGITS, 5))
