"""``make-lmdb``: what it prints and refuses."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from ppocr_ext.cli.main import main
from ppocr_ext.config.node import Place
from ppocr_ext.config.yaml_io import read_value


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
