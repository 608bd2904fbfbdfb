"""``make-dataset captcha``: the folder it promises, whatever the processes, and what it refuses."""

from __future__ import annotations

import json

import cv2
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource

SMALL = ("--train", "6", "--val", "3", "--seed", "3", "--processes", "1", "--painter", "fast")


def make(out, *options):
    return main(["make-dataset", "captcha", "--out", str(out), *SMALL, *options])


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_folder_is_what_paddleocr_reads(tmp_path, capsys):
    out = tmp_path / "sets" / "a"
    assert make(out) == 0
    assert "9 images drawn" in capsys.readouterr().out
    charset = Charset.from_file(out / "dict.txt")
    assert charset.characters == tuple("0123456789")
    for split, count in (("train", 6), ("val", 3)):
        rules = SampleRules(charset, 6, image_check="decode")
        result = check_label_files(out / f"{split}_list.txt", out, rules)
        assert (result.total, result.usable) == (count, count)
    first = (out / "train_list.txt").read_text().splitlines()[0].split("\t")
    label, image = CaptchaSource(CaptchaOptions(), 3).image("train", 0)
    assert first == ["train/0000/000000.png", label]
    assert (cv2.imread(str(out / first[0])) == image).all()
    assert cv2.imread(str(out / "samples.png")).shape[1] > 160


def test_the_number_of_processes_makes_no_difference(tmp_path):
    options = ("--train", "260", "--val", "3")  # more than one task
    assert make(tmp_path / "one", *options) == 0
    assert make(tmp_path / "two", *options, "--processes", "2") == 0
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_run_again_it_does_nothing(tmp_path, capsys):
    make(tmp_path)
    times = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    capsys.readouterr()
    assert make(tmp_path) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == times


@pytest.mark.parametrize(
    "lost", ["train/0000/000002.png", "val/0000/000001.png", "train_list.txt", "samples.png"]
)
def test_what_is_missing_is_made_again(tmp_path, lost):
    make(tmp_path)
    before = content(tmp_path)
    (tmp_path / lost).unlink()
    assert make(tmp_path) == 0
    assert content(tmp_path) == before


def test_a_folder_left_half_done_is_completed(tmp_path):
    make(tmp_path / "whole")
    make(tmp_path / "half")
    whole = content(tmp_path / "whole")
    manifest = json.loads(whole["dataset.json"])
    (tmp_path / "half" / "dataset.json").write_text(json.dumps({**manifest, "digest": None}))
    for lost in ("val_list.txt", "dict.txt", "samples.png", "train/0000/000005.png"):
        (tmp_path / "half" / lost).unlink()
    assert make(tmp_path / "half") == 0
    assert content(tmp_path / "half") == whole


def test_the_digest_tells_images_apart(tmp_path):
    digests = []
    for name, options in (("a", ()), ("b", ()), ("c", ("--seed", "4"))):
        make(tmp_path / name, *options)
        digests.append(json.loads((tmp_path / name / "dataset.json").read_text())["digest"])
    assert digests[0] == digests[1] != digests[2]


def test_other_parameters_are_refused_and_named(tmp_path, capsys):
    make(tmp_path)
    before = content(tmp_path)
    assert make(tmp_path, "--seed", "4", "--height", "70") == 2
    printed = capsys.readouterr().err
    assert printed.endswith("[other_parameters]\n")
    assert "height (found 60, expected 70)" in printed and "seed (found 3, expected 4)" in printed
    assert content(tmp_path) == before


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert make(tmp_path) == 2
    assert capsys.readouterr().err.endswith("[not_a_dataset]\n")
    assert set(content(tmp_path)) == {"thesis.tex"}
    assert make(tmp_path / "thesis.tex") == 2
    assert capsys.readouterr().err.endswith("[not_a_dataset]\n")
    (tmp_path / "thesis.tex").unlink()
    for content_of_another in ("{}", '{"kind": "captcha", "parameters": 0, "digest": null}'):
        (tmp_path / "dataset.json").write_text(content_of_another)
        assert make(tmp_path) == 2
        assert capsys.readouterr().err.endswith("[not_a_dataset]\n")


def test_characters_lengths_size_and_format(tmp_path):
    options = (
        "--characters",
        "abXY",
        "--length",
        "2",
        "3",
        "--width",
        "90",
        "--height",
        "40",
        "--format",
        "jpg",
    )
    assert make(tmp_path, *options) == 0
    rows = [line.split("\t") for line in (tmp_path / "train_list.txt").read_text().splitlines()]
    assert all(2 <= len(label) <= 3 and set(label) <= set("abXY") for _, label in rows)
    assert cv2.imread(str(tmp_path / rows[0][0])).shape == (40, 90, 3)
    assert rows[0][0].endswith(".jpg")
    assert (tmp_path / "dict.txt").read_text() == "a\nb\nX\nY\n"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--characters", "一二"), "undrawable_characters"),
        (("--train", "0", "--val", "0"), "bad_value"),
        (("--train", "-1"), "bad_value"),
        (("--processes", "0"), "bad_value"),
        (("--length", "6", "4"), "bad_value"),
    ],
)
def test_what_cannot_be_made_leaves_nothing(tmp_path, capsys, options, code):
    assert make(tmp_path / "out", *options) == 2
    assert capsys.readouterr().err.endswith(f"[{code}]\n")
    assert not (tmp_path / "out").exists()


def test_an_unwritable_place_is_a_sentence(capsys):
    assert make("/proc/no/such") == 2
    assert "/proc/no" in capsys.readouterr().err
