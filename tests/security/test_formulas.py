"""A text that was read cannot become a formula of the spreadsheet in which its TSV is opened."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ppocr_ext.evaluation.predictions import Prediction, read_predictions, write_predictions

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
