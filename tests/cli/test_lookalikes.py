"""``ppocr-ext lookalikes``: the file that it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import cv2
import matplotlib
import pytest

from ppocr_ext.characters.look_alikes import read_groups
from ppocr_ext.cli.main import main

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SANS, SERIF = str(FONTS / "DejaVuSans.ttf"), str(FONTS / "DejaVuSerif.ttf")


@pytest.fixture
def dictionary(tmp_path: Path) -> Path:
    path = tmp_path / "dict.txt"
    path.write_text("\n".join("0123456789OolI|SsZ#未") + "\n", encoding="utf-8")
    return path


def test_the_file_and_the_picture(tmp_path: Path, dictionary: Path, capsys: pytest.CaptureFixture) -> None:
    out, picture = tmp_path / "new" / "groups.txt", tmp_path / "pairs.png"
    options = ["--dict", str(dictionary), "--output", str(out), "--picture", str(picture)]
    assert main(["lookalikes", SANS, SERIF, *options]) == 0
    groups = read_groups(out)
    for pair in ("0O", "1l", "Ss"):
        assert any(set(pair) <= set(group) for group in groups), pair
    text = out.read_text(encoding="utf-8")
    assert "dict.txt" in text and "DejaVuSans.ttf: DejaVu Sans, 19 of the characters" in text
    sheet = cv2.imread(str(picture))
    assert sheet is not None and sheet.min() == 0 and sheet.shape[1] > 300
    said = capsys.readouterr()
    assert said.out == ""
    assert "no font draws 未" in said.err and "20 characters in 2 fonts" in said.err
    assert "pairs of the shipped groups" in said.err


def test_standard_output_takes_the_groups_alone(
    tmp_path: Path, dictionary: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["lookalikes", SANS, "--dict", str(dictionary), "--pairs", "2"]) == 0
    said = capsys.readouterr()
    (tmp_path / "groups.txt").write_text(said.out, encoding="utf-8")
    assert sum(len(group) * (len(group) - 1) // 2 for group in read_groups(tmp_path / "groups.txt")) == 2
    assert "2 pairs" in said.err and "the 2 most alike" in said.out


@pytest.mark.parametrize(
    ("options", "code", "fact"),
    [
        (["--similarity", "0.2"], "bad_value", "--similarity: found 0.2"),
        (["--similarity", "1"], "no_pairs", "20 characters"),
        (["--pairs", "0"], "bad_value", "--pairs: found 0"),
        (["--output", "."], "not_a_file", ". is a folder"),
        (["--picture", "dict.txt/x.png"], "unwritable_file", "dict.txt/x.png"),
        (["--dict", "none.txt"], "unreadable_file", "none.txt: "),
        (["--dict", "one.txt"], "too_few_characters", "one.txt: "),
        (["--dict", "cjk.txt"], "undrawable_characters", "DejaVuSans.ttf"),
    ],
)
def test_what_cannot_be_done_says_why(
    tmp_path: Path,
    dictionary: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    options: list[str],
    code: str | None,
    fact: str,
) -> None:
    (tmp_path / "one.txt").write_text("a\nab\n", encoding="utf-8")
    (tmp_path / "cjk.txt").write_text("未\n末\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["lookalikes", SANS, "--dict", "dict.txt", *options]) == 2
    message = capsys.readouterr().err
    assert fact in message and (code is None or f"[{code}]" in message)
