"""``make-dataset``: the folder it promises, whatever the processes, and what it refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import cv2
import matplotlib
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import SampleRules
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SANS, SERIF = str(FONTS / "DejaVuSans.ttf"), str(FONTS / "DejaVuSerif.ttf")
SMALL = ("--train", "6", "--val", "3", "--seed", "3", "--processes", "1")


def make(kind, out, *options):
    own = {"captcha": ("--painter", "fast"), "lines": ("--fonts", SANS, SERIF)}[kind]
    return main(["make-dataset", kind, "--out", str(out), *SMALL, *own, *options])


captchas, lines = partial(make, "captcha"), partial(make, "lines")


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rows(out, split="train"):
    text = (out / f"{split}_list.txt").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]


@pytest.mark.parametrize(("kind", "longest"), [("captcha", 6), ("lines", 8)])
def test_the_folder_is_what_paddleocr_reads(kind, longest, tmp_path, capsys):
    out = tmp_path / "sets" / "a"
    assert make(kind, out, "--length", "4", str(longest)) == 0
    assert "9 images drawn" in capsys.readouterr().out
    charset = Charset.from_file(out / "dict.txt")
    for split, count in (("train", 6), ("val", 3)):
        result = check_label_files(
            out / f"{split}_list.txt", out, SampleRules(charset, longest, image_check="decode")
        )
        assert (result.total, result.usable) == (count, count)
    name, label = rows(out)[0]
    drawn = cv2.imread(str(out / name))
    if kind == "captcha":
        expected, image = CaptchaSource(CaptchaOptions(), 3).image("train", 0)
        assert (name, label) == ("train/0000/000000.png", expected) and (drawn == image).all()
        assert charset.characters == tuple("0123456789")
    assert drawn.shape[0] == {"captcha": 60, "lines": 48}[kind]
    assert cv2.imread(str(out / "samples.png")).shape[1] > 160


@pytest.mark.parametrize("kind", ["captcha", "lines"])
def test_the_number_of_processes_makes_no_difference(kind, tmp_path):
    (tmp_path / "corpus.txt").write_text("a line of words\nand another one, longer than the first\n")
    small = {"lines": ("--corpus", str(tmp_path / "corpus.txt"), "--height", "24", "--width", "64")}
    options = ("--train", "260", *small.get(kind, ()))  # more than one task
    assert make(kind, tmp_path / "one", *options) == 0
    assert make(kind, tmp_path / "two", *options, "--processes", "2") == 0
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.parametrize("kind", ["captcha", "lines"])
def test_run_again_it_does_what_is_missing_and_nothing_else(kind, tmp_path, capsys):
    make(kind, tmp_path)
    before = content(tmp_path)
    times = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    capsys.readouterr()
    assert make(kind, tmp_path) == 0 and "nothing to do" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == times
    for lost in ("val/0000/000001.png", "train_list.txt", "samples.png"):
        (tmp_path / lost).unlink()
        assert make(kind, tmp_path) == 0
        assert ("1 images drawn" in capsys.readouterr().out) == lost.startswith("val/")
        assert content(tmp_path) == before


def test_a_folder_left_half_done_is_completed(tmp_path):
    captchas(tmp_path / "whole")
    captchas(tmp_path / "half")
    whole = content(tmp_path / "whole")
    manifest = json.loads(whole["dataset.json"])
    (tmp_path / "half" / "dataset.json").write_text(json.dumps({**manifest, "digest": None}))
    for lost in ("val_list.txt", "dict.txt", "samples.png", "train/0000/000005.png"):
        (tmp_path / "half" / lost).unlink()
    assert captchas(tmp_path / "half") == 0
    assert content(tmp_path / "half") == whole


def test_other_parameters_are_refused_and_named(tmp_path, capsys):
    captchas(tmp_path)
    before = content(tmp_path)
    assert captchas(tmp_path, "--seed", "4", "--height", "70") == 2
    printed = capsys.readouterr().err
    assert printed.endswith("[other_parameters]\n")
    assert "height (found 60, expected 70)" in printed and "seed (found 3, expected 4)" in printed
    assert lines(tmp_path) == 2 and capsys.readouterr().err.endswith("[other_parameters]\n")
    assert content(tmp_path) == before


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert captchas(tmp_path) == 2
    assert capsys.readouterr().err.endswith("[not_a_dataset]\n")
    assert set(content(tmp_path)) == {"thesis.tex"}
    assert captchas(tmp_path / "thesis.tex") == 2
    assert capsys.readouterr().err.endswith("[not_a_dataset]\n")
    (tmp_path / "thesis.tex").unlink()
    for content_of_another in ("{}", '{"kind": "captcha", "parameters": 0, "digest": null}'):
        (tmp_path / "dataset.json").write_text(content_of_another)
        assert captchas(tmp_path) == 2
        assert capsys.readouterr().err.endswith("[not_a_dataset]\n")


def test_characters_lengths_size_and_format(tmp_path):
    options = "--characters abXY --length 2 3 --width 90 --height 40 --format jpg"
    assert captchas(tmp_path, *options.split()) == 0
    images = rows(tmp_path)
    assert all(2 <= len(label) <= 3 and set(label) <= set("abXY") for _, label in images)
    assert cv2.imread(str(tmp_path / images[0][0])).shape == (40, 90, 3)
    assert images[0][0].endswith(".jpg")
    assert (tmp_path / "dict.txt").read_text() == "a\nb\nX\nY\n"


def test_a_font_of_another_content_is_another_parameter(tmp_path, capsys):
    font = tmp_path / "my.ttf"
    font.write_bytes(Path(SANS).read_bytes())
    assert lines(tmp_path / "out", "--fonts", str(font)) == 0
    font.write_bytes(Path(SERIF).read_bytes())
    assert lines(tmp_path / "out", "--fonts", str(font)) == 2
    printed = capsys.readouterr().err
    assert printed.endswith("[other_parameters]\n") and "splits" in printed


def test_a_dictionary_is_taken_over_and_its_blanks_are_not_drawn(tmp_path):
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("b\na\n\u3000\n", encoding="utf-8")
    assert lines(tmp_path / "out", "--dict", str(dictionary)) == 0
    assert (tmp_path / "out" / "dict.txt").read_bytes() == dictionary.read_bytes()
    assert set("".join(label for _, label in rows(tmp_path / "out"))) <= set("ab")


def test_a_corpus_gives_dictionary_and_texts(tmp_path, capsys):
    train, val = tmp_path / "t.txt", tmp_path / "v.txt"
    train.write_text("alpha beta\n")
    val.write_text("gamma delta\n")
    out = tmp_path / "out"
    assert lines(out, "--corpus", str(train), "--val-corpus", str(val), "--length", "4", "20") == 0
    said = capsys.readouterr().out
    assert "use_space_char: true" in said
    assert {label for _, label in rows(out)} <= {"alpha beta", "alpha", "beta"}
    assert {label for _, label in rows(out, "val")} <= {"gamma delta", "gamma", "delta"}
    assert (out / "dict.txt").read_text() == "".join(f"{c}\n" for c in sorted(set("alphabetagammadelta")))
    assert lines(tmp_path / "tight", "--corpus", str(train), "--no-space", "--length", "3", "9") == 0
    assert {label for _, label in rows(tmp_path / "tight")} == {"alpha", "beta"}


def fonts_of(out):
    splits = json.loads((out / "dataset.json").read_text())["parameters"]["splits"]
    return [{font.split()[0] for font in splits[name]["fonts"]} for name in ("train", "val")]


def test_fonts_of_train_and_val_can_be_kept_apart(tmp_path):
    assert lines(tmp_path / "a", "--fonts", SANS, "--val-fonts", SERIF) == 0
    assert fonts_of(tmp_path / "a") == [{"DejaVuSans.ttf"}, {"DejaVuSerif.ttf"}]
    assert lines(tmp_path / "b", "--fonts", "matplotlib", "--font-split", "0.3") == 0
    train, val = fonts_of(tmp_path / "b")
    assert train and val and not train & val


@pytest.mark.parametrize(
    ("kind", "options", "code", "fact"),
    [
        ("lines", ("--characters", "a漢"), "undrawable_characters", "漢"),
        ("lines", ("--dict", "/no/dict.txt"), None, "/no/dict.txt"),
        ("lines", ("--val-corpus", "x.txt"), "missing_option", "--corpus"),
        ("lines", ("--font-split", "0.5", "--val-fonts", SANS), "bad_value", "--val-fonts"),
        ("lines", ("--rich-in", "0O", "much"), "bad_value", "--rich-in 0O much"),
        ("lines", ("--blur", "1", "2", "3"), "bad_value", "blur: "),
        ("captcha", ("--characters", "一二"), "undrawable_characters", ""),
        ("captcha", ("--processes", "0"), "bad_value", ""),
        ("captcha", ("--out", "/proc/no/such"), "file_error", "/proc/no"),
    ],
)
def test_what_cannot_be_made_leaves_nothing(tmp_path, capsys, kind, options, code, fact):
    assert make(kind, tmp_path / "out", *options) == 2
    printed = capsys.readouterr().err
    assert fact in printed and (code is None or f"[{code}]\n" in printed)
    assert not (tmp_path / "out").exists()
