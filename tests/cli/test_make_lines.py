"""``make-dataset lines``: the folder it promises, whatever the processes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import matplotlib
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.cli.main import main
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import SampleRules

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SANS, SERIF = str(FONTS / "DejaVuSans.ttf"), str(FONTS / "DejaVuSerif.ttf")
SMALL = ("--train", "6", "--val", "3", "--seed", "3", "--processes", "1", "--fonts", SANS, SERIF)


def make(out, *options):
    return main(["make-dataset", "lines", "--out", str(out), *SMALL, *options])


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rows(out, split="train"):
    text = (out / f"{split}_list.txt").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]


def test_the_folder_is_what_paddleocr_reads(tmp_path, capsys):
    assert make(tmp_path / "lines", "--length", "2", "8") == 0
    out = tmp_path / "lines"
    assert "9 images drawn" in capsys.readouterr().out
    charset = Charset.from_file(out / "dict.txt")
    for split, count in (("train", 6), ("val", 3)):
        rules = SampleRules(charset, 8, image_check="decode")
        result = check_label_files(out / f"{split}_list.txt", out, rules)
        assert (result.total, result.usable) == (count, count)
    assert cv2.imread(str(out / rows(out)[0][0])).shape[0] == 48
    assert cv2.imread(str(out / "samples.png")).shape[1] > 300


def test_the_number_of_processes_makes_no_difference(tmp_path):
    texts = tmp_path / "corpus.txt"
    texts.write_text("a line of words\nand another one, longer than the first\n")
    options = ("--train", "252", "--corpus", str(texts), "--height", "24", "--width", "64")
    assert make(tmp_path / "one", *options) == 0
    assert make(tmp_path / "two", *options, "--processes", "2") == 0
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_run_again_it_does_what_is_missing_and_nothing_else(tmp_path, capsys):
    make(tmp_path)
    before = content(tmp_path)
    capsys.readouterr()
    assert make(tmp_path) == 0 and "nothing to do" in capsys.readouterr().out
    (tmp_path / "val" / "0000" / "000001.png").unlink()
    assert make(tmp_path) == 0 and "1 images drawn" in capsys.readouterr().out
    assert content(tmp_path) == before


def test_other_parameters_and_other_kinds_are_refused(tmp_path, capsys):
    make(tmp_path)
    before = content(tmp_path)
    assert make(tmp_path, "--blur", "0", "3") == 2
    printed = capsys.readouterr().err
    assert printed.endswith("[other_parameters]\n") and "style" in printed
    assert main(["make-dataset", "captcha", "--out", str(tmp_path), "--train", "6", "--val", "3"]) == 2
    assert capsys.readouterr().err.endswith("[other_parameters]\n")
    assert content(tmp_path) == before


def test_a_font_of_another_content_is_another_parameter(tmp_path, capsys):
    font = tmp_path / "my.ttf"
    font.write_bytes(Path(SANS).read_bytes())
    assert make(tmp_path / "out", "--fonts", str(font)) == 0
    font.write_bytes(Path(SERIF).read_bytes())
    assert make(tmp_path / "out", "--fonts", str(font)) == 2
    printed = capsys.readouterr().err
    assert printed.endswith("[other_parameters]\n") and "splits" in printed


def test_a_dictionary_is_taken_over_and_its_blanks_are_not_drawn(tmp_path):
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("b\na\n\u3000\n", encoding="utf-8")
    assert make(tmp_path / "out", "--dict", str(dictionary)) == 0
    assert (tmp_path / "out" / "dict.txt").read_bytes() == dictionary.read_bytes()
    assert set("".join(label for _, label in rows(tmp_path / "out"))) <= set("ab")


def test_a_corpus_gives_dictionary_and_texts(tmp_path, capsys):
    train, val = tmp_path / "t.txt", tmp_path / "v.txt"
    train.write_text("alpha beta\n")
    val.write_text("gamma delta\n")
    out = tmp_path / "out"
    assert make(out, "--corpus", str(train), "--val-corpus", str(val), "--length", "4", "20") == 0
    said = capsys.readouterr().out
    assert "use_space_char: true" in said
    assert {label for _, label in rows(out)} <= {"alpha beta", "alpha", "beta"}
    assert {label for _, label in rows(out, "val")} <= {"gamma delta", "gamma", "delta"}
    assert (out / "dict.txt").read_text() == "".join(f"{c}\n" for c in sorted(set("alphabetagammadelta")))
    assert make(tmp_path / "tight", "--corpus", str(train), "--no-space", "--length", "3", "9") == 0
    assert {label for _, label in rows(tmp_path / "tight")} == {"alpha", "beta"}


def fonts_of(out):
    splits = json.loads((out / "dataset.json").read_text())["parameters"]["splits"]
    return [{font.split()[0] for font in splits[name]["fonts"]} for name in ("train", "val")]


def test_fonts_of_train_and_val_can_be_kept_apart(tmp_path):
    assert make(tmp_path / "a", "--fonts", SANS, "--val-fonts", SERIF) == 0
    assert fonts_of(tmp_path / "a") == [{"DejaVuSans.ttf"}, {"DejaVuSerif.ttf"}]
    assert make(tmp_path / "b", "--fonts", "matplotlib", "--font-split", "0.3") == 0
    train, val = fonts_of(tmp_path / "b")
    assert train and val and not train & val


def test_lines_rich_in_characters_of_a_file(tmp_path):
    alike = tmp_path / "alike.txt"
    alike.write_text("0\nO\n")
    assert make(tmp_path / "out", "--train", "40", "--rich-in", str(alike), "1", "--height", "20") == 0
    assert set("".join(label for _, label in rows(tmp_path / "out"))) == set("0O")


def test_photos_as_backgrounds(tmp_path):
    (tmp_path / "photos").mkdir()
    cv2.imwrite(str(tmp_path / "photos" / "green.png"), np.full((60, 80, 3), (0, 255, 0), np.uint8))
    off = ("--background-kinds", "photo", "--noise", "0", "--jpeg", "0")
    assert make(tmp_path / "out", "--backgrounds", str(tmp_path / "photos"), *off) == 0
    for path, _ in rows(tmp_path / "out"):
        assert (cv2.imread(str(tmp_path / "out" / path))[0, 0] == (0, 255, 0)).all()


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        (("--characters", "a漢"), "undrawable_characters", "漢"),
        (("--dict", "/no/dict.txt"), None, "/no/dict.txt"),
        (("--corpus", "/no/corpus.txt"), "unreadable_file", "/no/corpus.txt"),
        (("--val-corpus", "x.txt"), "missing_option", "--corpus"),
        (("--fonts", "/no/font.ttf"), "missing_file", "/no/font.ttf"),
        (("--font-split", "0.5", "--val-fonts", SANS), "bad_value", "--val-fonts"),
        (("--font-split", "1.5"), "bad_value", "--font-split: found 1.5"),
        (("--rich-in", "0O", "much"), "bad_value", "--rich-in 0O much"),
        (("--blur", "1", "2", "3"), "bad_value", "blur: "),
        (("--noise", "-1"), "bad_value", "noise: "),
        (("--background-kinds", "photo"), "bad_value", "photos: "),
        (("--train", "0", "--val", "0"), "bad_value", "0 train"),
        (("--length", "9", "4"), "bad_value", "length: "),
    ],
)
def test_what_cannot_be_made_leaves_nothing(tmp_path, capsys, options, code, fact):
    assert make(tmp_path / "out", *options) == 2
    printed = capsys.readouterr().err
    assert fact in printed and (code is None or f"[{code}]\n" in printed)
    assert not (tmp_path / "out").exists()
