"""``make-lmdb``: what it prints and refuses."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from unittest.mock import Mock

import cv2
import lmdb
import numpy as np
import pytest
from error_codes import raises_code

from ppocr_ext.cli import make_lmdb as command
from ppocr_ext.cli.main import main
from ppocr_ext.cli.make_lmdb import make_lmdb
from ppocr_ext.config.node import Place
from ppocr_ext.config.yaml_io import read_value
from ppocr_ext.data import image_check
from ppocr_ext.data.lmdb_sets import open_sets
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.errors import DataError


@pytest.fixture
def lists(tmp_path):
    for number in range(4):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.full((8, 16, 3), 40 * number, np.uint8))
    (tmp_path / "a.txt").write_text("0.png|zero\n1.png|one\n")
    (tmp_path / "b.txt").write_text("2.png|two\n3.png|three\n")
    return tmp_path


def make(folder, out, *options, names=("a.txt", "b.txt")):
    files = [str(folder / name) for name in names]
    return main(
        [
            "make-lmdb",
            "--label-files",
            *files,
            "--data-dir",
            str(folder),
            "--out",
            str(out),
            "--delimiter",
            "|",
            *options,
        ]
    )


def test_it_prints_what_it_made_and_how_to_train_from_it(lists, capsys):
    out = lists / "sets" / "lmdb"
    assert make(lists, out) == 0
    output = capsys.readouterr().out
    assert "4 images" in output and "images/s" in output and "4 samples" in output
    snippet = output.partition("label files):\n")[2]
    section = read_value(snippet, Place("printed", "printed"))
    assert section.is_mapping and f"data_dir: {out}" in snippet
    assert make(lists, out) == 2
    assert "[folder_not_empty]" in capsys.readouterr().err


def test_skipped_lines_are_named(lists, capsys):
    (lists / "dict.txt").write_text("".join(f"{c}\n" for c in "zeronth"))
    assert make(lists, lists / "lmdb", "--dict", str(lists / "dict.txt"), "--max-unusable", "0.5") == 0
    output = capsys.readouterr().out
    assert "1 of 4 lines: 1 unknown_char" in output and "b.txt:1: unknown_char: 'w'" in output


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (("--max-text-length", "3"), "too_many_unusable", "2 too_long"),
        (("--delimiter", ";"), "too_many_unusable", "4 bad_format"),
        (("--data-dir", "/no/such"), "missing_folder", "/no/such"),
        (("--max-text-length", "0"), "bad_value", "--max-text-length"),
        (("--map-size", "1e12"), "bad_value", "--map-size"),
        (("--max-unusable", "7"), "", "--max-unusable"),
    ],
)
def test_an_lmdb_that_cannot_be_made_is_an_error_and_leaves_nothing(lists, capsys, options, code, named):
    assert make(lists, lists / "lmdb", *options) == 2
    error = capsys.readouterr().err
    assert named in error and (f"[{code}]" in error or not code)
    assert [*(lists / "lmdb").glob("*")] == []


# LMDBs from label files: what the host reads back, and what a writer that is stopped or killed leaves


@pytest.fixture
def images(tmp_path):
    """Twelve images and a label file."""
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(1)
    rows = []
    for number in range(12):
        name = f"{number}.{'png' if number % 2 else 'jpg'}"
        cv2.imwrite(str(folder / name), rng.integers(0, 255, (20, 40, 3), np.uint8))
        rows.append(f"{name}\tlabel {number} é漢\n")
    (tmp_path / "list.txt").write_text("".join(rows), encoding="utf-8")
    return folder


def write(out, images, *lists, image_check="header", **options):
    """Make an LMDB; return how many samples it has, and the report on the lines."""
    rules = SampleRules(None, None, image_check=image_check, allow_outside_data_dir=False)
    report = PreflightReport(images, rules)
    return make_lmdb(out, lists or [images.parent / "list.txt"], report, **options), report


def stored(out):
    with lmdb.open(str(out), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return {bytes(key): bytes(value) for key, value in transaction.cursor()}


def test_the_host_reads_it_back(images, tmp_path):
    from ppocr_ext.host import open_host

    samples, report = write(tmp_path / "out", images)
    assert (samples, report.usable, report.unusable_count) == (12, 12, 0)
    open_host()
    from ppocr.data.lmdb_dataset import LMDBDataSet

    section = {
        "dataset": {
            "data_dir": str(tmp_path / "out"),
            "transforms": [
                {"DecodeImage": {"img_mode": "BGR", "channel_first": False}},
                {"KeepKeys": {"keep_keys": ["image", "label"]}},
            ],
        },
        "loader": {"shuffle": False, "batch_size_per_card": 2},
    }
    dataset = LMDBDataSet({"Global": {}, "Train": section}, "Train", logging.getLogger("test"))
    assert len(dataset) == 12
    for index, (image, label) in enumerate(dataset[i] for i in range(12)):
        name = f"{index}.{'png' if index % 2 else 'jpg'}"
        assert label == f"label {index} é漢"
        assert np.array_equal(image, cv2.imread(str(images / name)))


def test_an_unusable_line_is_skipped_counted_and_named(images, tmp_path):
    (images / "empty.png").touch()
    (images / "cut.png").write_bytes((images / "1.png").read_bytes()[:-30])
    (tmp_path / "outside.png").write_bytes((images / "1.png").read_bytes())
    bad = tmp_path / "bad.txt"
    bad.write_bytes(
        b"0.jpg\tgood\nno tab\ngone.png\tx\n1.png\t\nempty.png\tx\ncut.png\tx\n../outside.png\tx\n"
        b"3.png\tfine\n\xff\tx\n"
    )
    _, report = write(tmp_path / "out", images, bad, image_check="decode", max_unusable=0.9)
    assert report.counts == {
        "bad_format": 2,
        "missing_image": 1,
        "empty_label": 1,
        "broken_image": 2,
        "outside_data_dir": 1,
    }
    assert {(each.line, each.reason) for each in report.unusable_samples} == {
        (2, "bad_format"),
        (3, "missing_image"),
        (4, "empty_label"),
        (5, "broken_image"),
        (6, "broken_image"),
        (7, "outside_data_dir"),
        (9, "bad_format"),
    }
    labels = [value for key, value in stored(tmp_path / "out").items() if key.startswith(b"label")]
    assert labels == [b"good", b"fine"]


def test_each_image_of_a_list_is_a_sample(images, tmp_path):
    (tmp_path / "j.txt").write_text('["1.png", "3.png"]\ttwice\n0.jpg\tonce\n["5.png", "gone.png"]\tno\n')
    _, report = write(tmp_path / "out", images, tmp_path / "j.txt", max_unusable=0.5)
    content = stored(tmp_path / "out")
    assert [content[b"label-%09d" % n] for n in (1, 2, 3)] == [b"twice", b"twice", b"once"]
    assert content[b"image-000000002"] == (images / "3.png").read_bytes()
    assert content[b"num-samples"] == b"3" and report.counts == {"missing_image": 1}


def test_each_image_is_opened_once_and_a_huge_file_is_skipped(images, tmp_path, monkeypatch):
    with (images / "large.png").open("wb") as stream:
        stream.truncate(1 << 40)  # of zeros, which take no space
    (tmp_path / "l.txt").write_text('large.png\tx\n["0.jpg", "1.png"]\ty\n3.png\tz\n')
    opened, read = [], image_check.read_at_most
    monkeypatch.setattr(
        image_check, "read_at_most", lambda path, most: opened.append(path) or read(path, most)
    )
    for check in ("none", "header", "decode"):
        options = {"image_check": check, "max_unusable": 0.5}
        samples, report = write(tmp_path / check, images, tmp_path / "l.txt", **options)
        assert (samples, report.counts) == (3, {"too_many_pixels": 1})
    assert len(opened) == 3 * 4


def test_one_whose_writer_was_killed_is_refused_and_not_read(images, tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from ppocr_ext.cli import make_lmdb as writer; from ppocr_ext.data.sample_rules import SampleRules\n"
        "writer._check_limit = lambda *given: os.kill(os.getpid(), signal.SIGKILL)\n"
        "folder = Path(sys.argv[1])\n"
        "report = writer.PreflightReport(folder / 'images', SampleRules(None, None))\n"
        "writer.make_lmdb(folder / 'out', [folder / 'list.txt'], report)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -signal.SIGKILL
    assert len(stored(tmp_path / "out")) == 24
    with raises_code(DataError, "folder_not_empty", "data.mdb", "not continued"):
        write(tmp_path / "out", images)
    with raises_code(DataError, "bad_num_samples", "incomplete"):
        open_sets(tmp_path / "out")


def test_one_that_is_stopped_leaves_an_empty_folder(images, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(command, "_check_limit", Mock(side_effect=KeyboardInterrupt))
        write(tmp_path / "out", images)
    assert [*(tmp_path / "out").iterdir()] == []
    assert write(tmp_path / "out", images)[0] == 12


def test_a_complete_one_is_not_changed(images, tmp_path):
    write(tmp_path / "out", images)
    before = stored(tmp_path / "out")
    with raises_code(DataError, "folder_not_empty", tmp_path / "out"):
        write(tmp_path / "out", images)
    assert stored(tmp_path / "out") == before


def test_the_map_grows(images, tmp_path):
    big = np.random.default_rng(2).integers(0, 255, (700, 700, 3), np.uint8)
    cv2.imwrite(str(images / "big.png"), big)
    (tmp_path / "b.txt").write_text("big.png\tx\n" * 4)
    write(tmp_path / "out", images, tmp_path / "b.txt", map_size=1 << 20)
    assert (tmp_path / "out" / "data.mdb").stat().st_size > 5_000_000
    assert stored(tmp_path / "out")[b"num-samples"] == b"4"


def test_too_many_unusable_lines_leave_nothing_until_they_are_allowed(images, tmp_path):
    (tmp_path / "b.txt").write_text("1.png\tx\ngone.png\ty\n")
    few = tmp_path / "b.txt"
    facts = ("1 of 2 ", "1 missing_image", "--max-unusable 0.5", "b.txt:2: missing_image")
    with raises_code(DataError, "too_many_unusable", *facts):
        write(tmp_path / "out", images, few)
    assert [*(tmp_path / "out").iterdir()] == []
    assert write(tmp_path / "out", images, few, max_unusable=0.5)[0] == 1
    assert stored(tmp_path / "out")[b"num-samples"] == b"1"


def test_folders_with_other_files_are_refused(images, tmp_path):
    for folder, code in ((images, "folder_not_empty"), (tmp_path / "list.txt", "not_an_lmdb")):
        with raises_code(DataError, code, str(folder)):
            write(folder, images)


def test_two_processes_do_not_mix(images, tmp_path, monkeypatch):
    def other(*given):
        with raises_code(DataError, "folder_not_empty"):
            write(tmp_path / "out", images)

    with monkeypatch.context() as patch:
        patch.setattr(command, "_check_limit", other)
        assert write(tmp_path / "out", images)[0] == 12
    assert len(stored(tmp_path / "out")) == 25
