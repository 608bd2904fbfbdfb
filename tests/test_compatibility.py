"""The tables of recognisers in docs/compatibility.md have each official weight and config, with the right classes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ppocr_ext.checkpoint.official_weights import table
from ppocr_ext.config import Config, resolve_charset
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_root

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / "compatibility.md", ROOT / "docs" / "zh" / "compatibility.md"]
LANGUAGE = re.compile(r"(\w+?)_PP-OCRv([345])_mobile_rec")
NO_MODELS = {"data", "pairs", "single", "v3_data"}  # bases of other configs

pytestmark = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)


def rows(page: Path, number: int) -> list[list[str]]:
    """Cells of the table of that number in the section of the recognisers, without its head."""
    section = re.split(r"^##+ ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
    tables = re.findall(r"(?:^\|.*\|\n)+", section, flags=re.MULTILINE)
    lines = tables[number].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_official_weight_has_its_row(page: Path) -> None:
    of_rows = {name for row in rows(page, 0) for name in re.findall(r"`([^`\s]+)`", row[1])}
    assert of_rows == {name for name in table() if not LANGUAGE.fullmatch(name)}
    found = {
        (row[0].strip("`"), version): row[column]
        for row in rows(page, 1)
        for column, version in ((1, "3"), (2, "4"), (3, "5"))
        if row[column] != "–"
    }
    languages = {(m[1], m[2]): w.classes for name, w in table().items() if (m := LANGUAGE.fullmatch(name))}
    assert found == {key: f"{classes:,}" for key, classes in languages.items()}


def test_dictionaries_have_the_classes_of_their_rows(page: Path) -> None:
    dictionaries = {Path(w.dictionary).name: w.dictionary for w in table().values() if w.dictionary}
    dictionaries |= {
        f"{name}.txt": f"ppocr/utils/dict/{name}.txt" for name in ("ppocrv6_dict", "ppocrv6_tiny_dict")
    }
    counts = {
        name: count
        for row in rows(page, 0)
        for name, count in re.findall(r"`([^`\s]+)` ?[(（]([\d,]+)", row[2])
    }
    assert len(counts) > 4
    for name, count in counts.items():
        values = {"character_dict_path": dictionaries[name], "use_space_char": True}
        charset = resolve_charset(Config({"Global": values}), open_host().find_file)
        assert f"{charset.ctc_classes:,}" == count


def test_each_config_is_named(page: Path) -> None:
    own = {file.stem for file in (config_root() / "pp-ocr").glob("*.yml")} - NO_MODELS
    cells = [cell for row in rows(page, 0) for cell in row[3:5]]
    named = {Path(name).stem for cell in cells for name in re.findall(r"`([^`\s]+\.yml)`", cell)}
    assert own <= named
    others = {
        "ch_PP-OCRv4_rec_svtr_large",
        "ch_PP-OCRv2_rec_distillation",
        "PP-OCRv3_mobile_rec_distillation",
    }
    assert named - own == others | {"teacher", "student", "distill"}
