"""Text from files cannot command a terminal, forge a line of the log or turn the direction of a message."""

from __future__ import annotations

import csv
import json
import logging
import os
import unicodedata
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from ppocr_ext.cli.main import main
from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import Prediction, read_predictions, write_predictions
from ppocr_ext.messages import for_people, printable, unprintable
from ppocr_ext.run.logs import ConsoleHandler, log_file

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\u202egnp.\u2066\x9b31m\u2028\x7f\ud800"
LEGIT = [
    "未来 已己巳",
    "فارسی‌ها",
    "עברית",
    "हिन्दी क्ष",
    "ไทย",
    "Größe – 5 €",
    "👩‍👩‍👧",
    "e\u0301",
    "\u200fمرحبا\u200e",
    "\ufeffa",
    "\xa0",
]
DANGEROUS = {"Cc", "Zl", "Zp", "Cs"}


def is_harmless(text: str) -> bool:
    allowed = set("\n\t")
    turned = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return all(
        c in allowed
        or unicodedata.category(c) not in DANGEROUS
        and unicodedata.bidirectional(c) not in turned
        for c in text
    )


def test_every_character_that_unicode_calls_a_control_is_replaced_and_no_other() -> None:
    for code in range(0x3000):
        shown = printable(chr(code))
        assert is_harmless(shown) and (shown == chr(code)) == is_harmless(chr(code))
        assert unprintable(shown) == chr(code)


@pytest.mark.parametrize("text", LEGIT)
def test_text_of_any_script_stays(text: str) -> None:
    assert printable(text) == for_people(text) == text


def test_a_long_line_is_cut_and_short_ones_around_it_stay() -> None:
    shown = for_people(f"before\n{'x' * 50_000_000}end\nafter")
    lines = shown.split("\n")
    assert lines[0] == "before" and lines[2] == "after" and lines[1].endswith("xend")
    assert len(shown) < 2500 and "49,998,003 characters" in lines[1]


def test_terminal_and_log_file_show_it_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("of this test")
    logger.addHandler(ConsoleHandler())
    with log_file(tmp_path / "train.log", logger):
        logger.warning("%s cannot be read", HOSTILE)
        logger.warning("%s is long", "y" * 1_000_000)
        try:
            raise DataError(HOSTILE)
        except DataError:
            logger.exception("failed")
    log = (tmp_path / "train.log").read_text(encoding="utf-8")
    for shown in (log, capsys.readouterr().out):
        assert is_harmless(shown) and "\\u001b]0;owned\\u0007" in shown and "\\u202e" in shown
        assert max(map(len, shown.split("\n"))) < 2500


@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_the_message_of_an_error_is_quoted(
    debug: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yml").write_text(
        json.dumps({"Global": {HOSTILE[:-1]: 1}, "_BASE_": "z" * 100_000 + HOSTILE[:-1]})
    )
    assert main(["config", "-c", str(tmp_path / "my.yml"), *debug]) == 2
    said = capsys.readouterr().err
    assert is_harmless(said) and "\\u001b]0" in said and len(said) < 40_000


def test_what_commands_print_is_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my.yml").write_text(
        json.dumps({"Global": {"save_model_dir": HOSTILE[:-1], "model_name": "a\u202eb", HOSTILE[:-1]: 1}})
    )
    main(["config", "-c", str(tmp_path / "my.yml")])
    shown = capsys.readouterr()
    assert is_harmless(shown.out) and is_harmless(shown.err)
    read = yaml.safe_load(shown.out)["Global"]
    assert (read["save_model_dir"], read["model_name"]) == (HOSTILE[:-1], "a\u202eb")
    main(["config", "-c", str(tmp_path / "my.yml"), "--check"])
    shown = capsys.readouterr()
    assert is_harmless(shown.out) and "\\u202e" in shown.out


def test_names_of_images_are_quoted_where_they_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{HOSTILE[:-1]}.png"
    cv2.imwrite(os.fspath(tmp_path / "a.png"), np.full((8, 24, 3), 9, np.uint8))
    (tmp_path / "list.txt").write_text(f'{name}\t1\n["\\\\ud800.png"]\t1\na.png\t1\n'.replace("\r", ""))
    arguments = ["--label-files", tmp_path / "list.txt", "--data-dir", tmp_path, "--out", tmp_path / "out"]
    assert main(["make-lmdb", *map(str, arguments), "--max-unusable", "0.7"]) == 0
    shown = capsys.readouterr().out
    assert is_harmless(shown) and "\\u202egnp" in shown and "\\ud800.png" in shown


def test_a_tsv_holds_it_quoted_and_is_read_as_it_was(tmp_path: Path) -> None:
    text = HOSTILE.replace("\ud800", "")
    written = [Prediction(text, text, text, 0.5), *(Prediction("a.png", each, "1", 0.5) for each in LEGIT)]
    write_predictions(tmp_path / "p.tsv", written)
    assert is_harmless((tmp_path / "p.tsv").read_text(encoding="utf-8"))
    assert read_predictions(tmp_path / "p.tsv") == written


# A text that was read cannot become a formula of the spreadsheet in which its TSV is opened

FORMULAS = [
    "=1+1",
    "=cmd|'/C calc'!A0",
    "@SUM(1+1)*cmd",
    "+cmd|'/C calc'!A0",
    "-2+3+cmd|' /C calc'!A0",
    '=HYPERLINK("http://x","y")',
]
TEXTS = ["-5.00", "+49 30 123456", "=", "@", "-", "'quoted'", "12-34", "a=b", "- 7 -", "'", "未=1"]
APOSTROPHES = ["'=1+1", "''@SUM(1)", "'-cmd"]


@pytest.mark.parametrize("text", FORMULAS + TEXTS + APOSTROPHES)
def test_cells_are_safe_and_read_back_as_they_were(text: str, tmp_path: Path) -> None:
    written = [Prediction(text, text, text, 0.25)]
    write_predictions(tmp_path / "p.tsv", written)
    with (tmp_path / "p.tsv").open(encoding="utf-8", newline="") as stream:
        cells = list(csv.reader(stream, delimiter="\t"))[1]
    assert cells[0][0] not in "=@+-" or text in TEXTS
    assert text not in TEXTS or cells[:3] == [text] * 3
    assert read_predictions(tmp_path / "p.tsv") == written
