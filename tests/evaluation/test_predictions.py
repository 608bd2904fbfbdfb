from __future__ import annotations

from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.errors import DataError
from ppocr_ext.evaluation.predictions import (
    Prediction,
    check_same_samples,
    read_predictions,
    write_predictions,
)


def test_predictions_are_read_as_they_are_written(tmp_path: Path) -> None:
    written = [Prediction("a.png", 'q"\t', "未", 0.5), Prediction("b.png", "1", "", 0.0)]
    write_predictions(tmp_path / "p.tsv", written)
    assert read_predictions(tmp_path / "p.tsv") == written
    lines = (tmp_path / "p.tsv").read_text(encoding="utf-8").splitlines()
    more = [f"{line}\t{extra}\t{extra}\n" for line, extra in zip(lines, ("x", "0.5", ""), strict=True)]
    (tmp_path / "p.tsv").write_text("".join(more), encoding="utf-8")  # of `predict --characters`
    assert read_predictions(tmp_path / "p.tsv") == written


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("", "bad_content", "p.tsv:1"),
        ("image\tlabel\n", "bad_content", "p.tsv:1"),
        ("image\tlabel\tprediction\tconfidence\n", "empty_file", "p.tsv"),
        ("image\tlabel\tprediction\tconfidence\na\tb\n", "bad_content", "p.tsv:2"),
        ("image\tlabel\tprediction\tconfidence\na\tb\tc\thigh\n", "bad_content", "p.tsv:2"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, code: str, place: str) -> None:
    (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
    with raises_code(DataError, code, str(tmp_path / place)):
        read_predictions(tmp_path / "p.tsv")


@pytest.mark.parametrize(
    ("after", "facts"),
    [([("a", "y")], ("before:2", "after:2", "'x'", "'y'")), ([("a", "x")] * 2, ("before", "1 ", "after 2"))],
)
def test_two_files_must_be_of_the_same_samples(after: list[tuple[str, str]], facts: tuple[str, ...]) -> None:
    before = [Prediction("a", "x", "x", 1.0)]
    check_same_samples(before, before, ("before", "after"))
    with raises_code(DataError, "different_samples", *facts):
        check_same_samples(before, [Prediction(*each, "x", 1.0) for each in after], ("before", "after"))
