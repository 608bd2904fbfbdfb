"""Labels that a delimiter cuts off are told from columns of numbers, in plain blocks and line by line."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.data.further_columns import FurtherColumns
from ppocr_ext.data.preflight import check_label_files
from ppocr_ext.data.sample_rules import ImageCheck, SampleRules

DIGITS = Charset(tuple("0123456789"))


def further(
    folder: Path, rests: list[str], check: ImageCheck = "header", delimiter: str = "\t"
) -> FurtherColumns:
    """What is found for lines with these texts after the label ``12``."""
    cv2.imwrite(str(folder / "a.png"), np.full((8, 24, 3), 200, np.uint8))
    file = folder / "list.txt"
    file.write_bytes("".join(f"a.png{delimiter}12{rest}\n" for rest in rests).encode())
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
    assert (found.kinds, found.cut) == ({0, 1, -1}, 12)
    assert found.examples == [(71, "12", "80"), (73, "12", f"中{delimiter}x"), (75, "12", "1")]


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


def test_lines_that_cannot_be_used_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    cv2.imwrite(str(tmp_path / "a.png"), np.full((8, 24, 3), 200, np.uint8))
    file.write_text("path,label,score\n" + "a.png,12,0.9\n" * 3 + "a.png\n")
    report = check_label_files(file, tmp_path, SampleRules(DIGITS, 5), delimiter=",")
    assert (report.usable, report.files[0].further.kinds) == (3, {1})
