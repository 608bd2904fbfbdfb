"""Labels that a delimiter cuts off are told from columns of numbers, in plain blocks and line by line."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.preflight_report import FurtherColumns
from ppocr_ext.data.sample_rules import ImageCheck, SampleRules

DIGITS = Charset(tuple('0123456789"'))


def further(
    folder: Path, rests: list[str], check: ImageCheck = "header", delimiter: str = "\t", begin: str = "12"
) -> FurtherColumns:
    """What is found for lines with these texts after the label ``12``, or another begin of it."""
    cv2.imwrite(str(folder / "a.png"), np.full((8, 24, 3), 200, np.uint8))
    file = folder / "list.txt"
    file.write_bytes("".join(f"a.png{delimiter}{begin}{rest}\n" for rest in rests).encode())
    report = check_label_files(file, folder, SampleRules(DIGITS, 5, image_check=check), delimiter=delimiter)
    return report.files[0].further


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("delimiter", ["\t", "::", " "])
def test_what_is_cut_off(tmp_path: Path, check: ImageCheck, delimiter: str) -> None:
    rests = (
        [""] * 70
        + [f"{delimiter}80", "", f"{delimiter}中{delimiter}x\r", f"{delimiter}", f"{delimiter}1"]
        + [f"{delimiter}9"] * 9
    )
    found = further(tmp_path, rests, check, delimiter)
    # a delimiter at the end of a line cuts nothing off
    assert (found.kinds, found.counts) == ({0, 1, -1}, {"cut_label": 12})
    rests = ["80", f"中{delimiter}x", "1"]
    assert found.examples == [
        ("cut_label", at, "12", rest) for at, rest in zip((71, 73, 75), rests, strict=True)
    ]


@pytest.mark.parametrize(
    ("rests", "kinds"),
    [
        (["", ""], {0}),
        (["\t0.98", "\t-1e-5", "\t", "\t 7 "], {1}),
        (["\t1\t2.5", "\t.5\t3."], {2}),
        (["\t1", ""], {0, 1}),
        (["\t1", "\t1\t2"], {1, 2}),
        (["\t1-2"], {-1}),
        (["\tnan"], {-1}),
    ],
)
def test_columns_of_numbers(tmp_path: Path, rests: list[str], kinds: set[int]) -> None:
    assert further(tmp_path, rests).kinds == kinds


@pytest.mark.parametrize("check", ["header", "decode"])
@pytest.mark.parametrize("delimiter", [",", ";", "::"])
def test_labels_in_quotes(tmp_path: Path, check: ImageCheck, delimiter: str) -> None:
    rests = ['12"', f'1{delimiter} with it"', "", *['3"'] * 70]  # the third label is a quotation mark
    found = further(tmp_path, rests, check, delimiter, '"')
    assert found.counts == {"quoted_label": 72}
    assert [each[1:] for each in found.examples] == [(1, '"12"', ""), (2, '"1', ' with it"'), (4, '"3"', "")]


def test_quotes_are_text_where_a_tab_separates(tmp_path: Path) -> None:
    found = further(tmp_path, ['2"', '1\tx"'], begin='"')
    assert found.examples == [("cut_label", 2, '"1', 'x"')]


def test_lines_that_cannot_be_used_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    cv2.imwrite(str(tmp_path / "a.png"), np.full((8, 24, 3), 200, np.uint8))
    file.write_text("path,label,score\n" + "a.png,12,0.9\n" * 3 + "a.png\n")
    report = check_label_files(file, tmp_path, SampleRules(DIGITS, 5), delimiter=",")
    assert (report.usable, report.files[0].further.kinds) == (3, {1})
