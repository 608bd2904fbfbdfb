"""An export of some characters: the rows of the classifier for these alone, as the whole network has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from error_codes import raises_code
from networks import assert_near
from released import CHARACTERS, describe, write_network
from saved_runs import save_run
from tiny_runs import captchas, tiny

from ppocr_ext.charset import characters_in
from ppocr_ext.cli.main import main
from ppocr_ext.errors import CharsetError
from ppocr_ext.io.resources import CACHE_VARIABLE
from ppocr_ext.recognition.images import read_image
from ppocr_ext.recognition.opening import OpenOptions, open_parts

__all__ = ["captchas", "tiny"]


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("0-9", "0123456789"),
        ("a-cX", "abcX"),
        ("-a", "-a"),
        ("a-", "a-"),
        ("121", "12"),
        ("一-三", "一丁丂七丄丅丆万丈三"),
    ],
)
def test_ranges_name_characters(text: str, characters: str) -> None:
    assert characters_in(text) == characters


@pytest.mark.parametrize("text", ["", "9-0"])
def test_no_character_and_a_range_backwards_are_refused(text: str) -> None:
    with pytest.raises(CharsetError):
        characters_in(text)


def test_the_rows_of_some_characters_are_exported(
    captchas: Path, tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(tiny("student"), tmp_path / "run")
    labels = captchas / "val_list.txt"
    words = ["export", str(tmp_path / "run"), "--output", str(tmp_path / "cut"), "--format", "paddle"]
    assert main([*words, "--characters", "2-57", "--data", str(labels)]) == 0
    said = capsys.readouterr().out
    assert "before: 10 of 10 readings have another character" in said
    assert "after: 0 of 10 readings have another character" in said
    assert (tmp_path / "cut" / "charset.txt").read_text(encoding="utf-8") == "2\n3\n4\n5\n7\n"

    whole, cut = (open_parts(tmp_path / name, OpenOptions()) for name in ("run", "cut"))
    image = read_image(captchas / "val" / "0000" / "000000.png")
    kept = [0, *(whole.charset.ids("23457"))]
    before = whole.probabilities(whole.policy.prepare(image)[None])[0][:, kept]
    after = cut.probabilities(cut.policy.prepare(image)[None])[0]
    assert_near(after, before / before.sum(axis=1, keepdims=True))


def test_characters_that_the_recogniser_does_not_know_are_refused(
    tiny: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_run(tiny("student"), tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--characters", "0-9A"]) == 2
    assert "does not know A" in capsys.readouterr().err


def test_a_released_model_is_cut_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    write_network("pp-ocr/v6_tiny", tmp_path, 320)
    describe(tmp_path, CHARACTERS, shape=(3, 48, 320), name="PP-OCRv6_tiny_rec")
    dictionary = tmp_path / "few.txt"
    dictionary.write_text("c\na\n", encoding="utf-8")
    with raises_code(CharsetError, "class_count", "ppocr-ext export", "--characters"):
        open_parts(tmp_path, OpenOptions(dictionary=dictionary, trust_model=True))
    words = ["export", str(tmp_path), "--output", str(tmp_path / "cut"), "--format", "paddle"]
    assert main([*words, "--dict", str(dictionary)]) == 0
    assert open_parts(tmp_path / "cut", OpenOptions()).charset.characters == ("a", "c")
