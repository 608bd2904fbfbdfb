"""LMDBs: the same rules for samples as for lines, and a number of samples that is wrong."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import lmdb
import pytest
from error_codes import raises_code
from lmdb_files import IMAGE, write_lmdb

from ppocr_ext.charset import Charset
from ppocr_ext.data.lmdb_sets import open_sets
from ppocr_ext.data.preflight import check_lmdbs
from ppocr_ext.data.sample_rules import FrameLimit, SampleRules
from ppocr_ext.data.unusable_limit import UnusableLimit, limit_errors
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
    assert list(result.files[0].lines) == [True, *[False] * 7, True, True]
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


# A damaged LMDB is an error with its name; reading beyond the end of its file would end the process (SIGBUS)

PAGE, SAMPLES = 4096, 300


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """Return the file of an LMDB of noise."""
    noise = random.Random(0)
    with (
        lmdb.open(str(tmp_path / "whole"), map_size=1 << 24) as environment,
        environment.begin(write=True) as put,
    ):
        put.put(b"num-samples", str(SAMPLES).encode())
        for number in range(1, SAMPLES + 1):
            put.put(b"label-%09d" % number, b"1")
            put.put(b"image-%09d" % number, noise.randbytes(3000))
    return (tmp_path / "whole" / "data.mdb").read_bytes()


def folder_of(tmp_path: Path, name: str, content: bytes) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "data.mdb").write_bytes(content)
    return folder


def test_a_truncated_one_is_refused_wherever_it_ends(tmp_path: Path, whole: bytes) -> None:
    sizes = [
        1,
        100,
        PAGE,
        PAGE + 900,
        2 * PAGE,
        2 * PAGE + 1,
        len(whole) // 2,
        len(whole) - PAGE,
        len(whole) - 1,
    ]
    folders = [folder_of(tmp_path, str(size), whole[:size]) for size in sizes]
    code = (
        "import sys; from ppocr_ext.data.lmdb_sets import open_sets; from ppocr_ext.errors import DataError\n"
        "for folder in sys.argv[1:]:\n"
        "  for _ in range(2):\n"  # the first time leaves nothing that the second would take
        "    try: print(open_sets(folder))\n"
        "    except DataError as error: print(error.code, folder in str(error))"
    )
    ran = subprocess.run([sys.executable, "-c", code, *map(str, folders)], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["damaged_file True"] * 2 * len(sizes)


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"junk"])
def test_pages_that_were_overwritten_are_named(tmp_path: Path, whole: bytes, fill: bytes) -> None:
    content, pages = bytearray(whole), random.Random(1).sample(range(2, len(whole) // PAGE), 60)
    for page in pages:
        content[page * PAGE : (page + 1) * PAGE] = (fill * PAGE)[:PAGE]
    folder = folder_of(tmp_path, "overwritten", bytes(content))
    with raises_code(DataError, "damaged_file", folder):
        for opened in open_sets(folder):
            for number in range(1, opened.count + 1):
                opened.label(number), opened.image(number)


def test_a_whole_one_and_one_with_more_behind_it_are_read(tmp_path: Path, whole: bytes) -> None:
    for name, content in (("same", whole), ("longer", whole + bytes(3 * PAGE))):
        (opened,) = open_sets(folder_of(tmp_path, name, content))
        assert opened.count == SAMPLES and len(opened.image(SAMPLES) or b"") == 3000
