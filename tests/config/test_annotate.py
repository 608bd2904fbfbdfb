"""YAML with the origin of each value reads back equal, whatever the values are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ppocr_ext.config import Config, load
from ppocr_ext.io.resources import config_root

# v3_data.yml has no base: it removes a key of the file that it goes over
SHIPPED = sorted(file for file in config_root().rglob("*.yml") if file.stem != "v3_data")

NASTY = [
    "1e-3",
    "0123",
    "true",
    "null",
    "",
    " # no comment",
    "a: b",
    "- a",
    "[1",
    "two\nlines\n",
    "\ttab ",
    "'quoted' \"twice\"",
    "é中\U0001f600",
    "\u2028",
    "x" * 300,
    "word " * 60,
    "&a",
    "*a",
    "!tag",
    "%",
    "@",
    "=",
    "<<",
    "~",
    "2020-01-01",
]


def test_a_file_an_option_and_what_is_computed(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(
        "Global:\n  epoch_num: 3\n  seed: 1\nTrain:\n  transforms:\n  - A: {b: 1}\n  - C: null\n"
    )
    config = load([tmp_path / "a.yml"], ["Global.seed=7"]).with_values({"Global.new": [1, 2]})
    lines = config.to_yaml(origins=True).splitlines()
    file = tmp_path / "a.yml"
    assert [line.split("  # ") for line in lines] == [
        ["Global:"],
        ["  epoch_num: 3", f"{file}:2"],
        ["  seed: 7     ", "-o"],
        ["  new: [1, 2] ", "computed"],
        ["Train:"],
        ["  transforms:"],
        ["    - A:"],
        ["        b: 1  ", f"{file}:6"],
        ["    - C: null ", f"{file}:7"],
    ]


@pytest.mark.parametrize("text", NASTY)
def test_any_text_reads_back(text: str, tmp_path: Path) -> None:
    values = {
        "a": text,
        "b": [text, 1],
        "c": [{"d": text}, text, None],
        text or "e": {"f": text, "g": {}},
        "h": [[text]],
    }
    written = Config(values).to_yaml(origins=True)
    assert yaml.safe_load(written) == values
    (tmp_path / "again.yml").write_text(written, encoding="utf-8")
    assert load([tmp_path / "again.yml"]).thaw() == values


@pytest.mark.parametrize("path", SHIPPED, ids=str)
def test_every_shipped_config_reads_back(path: Path, tmp_path: Path) -> None:
    config = load([path])
    (tmp_path / "again.yml").write_text(config.to_yaml(origins=True), encoding="utf-8")
    assert load([tmp_path / "again.yml"]) == config


def test_numbers_of_any_key_and_nested_empties_read_back() -> None:
    values = {
        1: {True: 1.5, None: [], 2.5: [[], {}, [{}]]},
        "x": [{"a": 1, "b": [{"c": {"d": []}}]}],
        "y": float("inf"),
    }
    assert yaml.safe_load(Config(values).to_yaml(origins=True)) == values
    assert yaml.safe_load(Config({}).to_yaml(origins=True) or "{}") == {}
