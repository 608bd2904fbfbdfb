"""Dictionaries of PP-OCRv5 and v6 ship with the package, as PaddleOCR 3.7 has them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ppocr_ext.config import Config, resolve_charset
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import find_dictionary

FOLDER = Path(__file__).resolve().parents[2] / "ppocr_ext" / "dictionaries"
FACTS = json.loads(
    (FOLDER.parents[1] / "tests/fixtures/networks/configs_facts.json").read_text(encoding="utf-8")
)
NEEDED = {
    facts["dictionary"]["file"]: facts["dictionary"]
    for facts in FACTS["configs"].values()
    if not facts["dictionary"]["in_paddleocr_2_10_wheel"]
}


@pytest.mark.parametrize(("path", "facts"), NEEDED.items())
def test_a_dictionary_of_an_official_config_is_found(path: str, facts: dict[str, object]) -> None:
    file = open_host().find_file(path)
    assert file is not None
    assert hashlib.sha256(file.read_bytes()).hexdigest() == facts["sha256"]
    values = {"character_dict_path": path, "use_space_char": facts["use_space_char"]}
    charset = resolve_charset(Config({"Global": values}), open_host().find_file)
    assert charset.ctc_classes == facts["ctc_classes"]


def test_a_copy_in_a_clone_of_paddleocr_is_read_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Arabic dictionary repeats characters, and each line has a class."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arabic.txt").write_bytes(text := (FOLDER / "ppocrv5_arabic_dict.txt").read_bytes())
    (tmp_path / "own.txt").write_bytes(text + b"x\n")

    def classes(name: str) -> int:
        return resolve_charset(
            Config({"Global": {"character_dict_path": name}}), open_host().find_file
        ).ctc_classes

    assert classes("arabic.txt") == 748
    assert classes("own.txt") == 749


def test_sources_and_size() -> None:
    sources = json.loads((FOLDER / "sources.json").read_text(encoding="utf-8"))
    assert {entry["path"] for entry in sources["files"].values()} == set(NEEDED)
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 500_000


def test_other_paths_find_nothing() -> None:
    assert find_dictionary("ppocrv5_dict.txt") is None
    assert find_dictionary("ppocr/utils/dict/../dict/ppocrv5_dict.txt") is None
    assert find_dictionary("ppocr/utils/dict/none.txt") is None


def test_a_file_of_the_user_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "ppocr/utils/dict/ppocrv5_dict.txt"
    own.parent.mkdir(parents=True)
    own.write_text("a\nb\n", encoding="utf-8")
    assert open_host().find_file("ppocr/utils/dict/ppocrv5_dict.txt") == own
