"""The table of the keys of ``Global``: rules, defaults, and the reference that is written from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ppocr_ext
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import FILLED_DEFAULTS, GLOBAL_KEYS, global_value
from ppocr_ext.errors import ConfigError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_each_default_follows_the_rule_of_its_key() -> None:
    assert [name for name, key in GLOBAL_KEYS.items() if key.problem(key.default) is not None] == []
    assert all(value is not None for value in FILLED_DEFAULTS.values())


def test_each_key_has_a_meaning() -> None:
    assert [name for name, key in GLOBAL_KEYS.items() if not key.meaning.strip()] == []


def test_each_key_that_the_package_reads_is_in_the_table() -> None:
    package = Path(ppocr_ext.__file__).parent
    reading = re.compile(r"""["'(]Global\.(\w+)["']|global_value\(\w+, "(\w+)"\)""")
    read = {
        found[0] or found[1]
        for file in package.rglob("*.py")
        if file != package / "export" / "clients.py"  # RapidOCR has a `Global` of its own
        for found in reading.findall(file.read_text(encoding="utf-8"))
    }
    assert len(read) > 20
    assert read - set(GLOBAL_KEYS) == set()


def test_a_missing_key_and_null_give_the_default() -> None:
    assert global_value(Config({}), "max_unusable") == 0.1
    assert global_value(Config({"Global": {"report": None}}), "report") is True
    assert global_value(Config({"Global": {"report": False}}), "report") is False


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("max_unusable", 1.5, "bad_value"),
        ("max_unusable", True, "bad_value"),
        ("scale_loss", 0, "bad_value"),
        ("scale_loss", float("inf"), "bad_value"),
        ("epoch_num", "3", "quoted_value"),
        ("strict", "yes", "quoted_value"),
        ("strict", "3", "bad_value"),
        ("save_model_dir", 3, "bad_value"),
        ("plugins", [3], "bad_value"),
        ("amp_custom_black_list", "exp", "bad_value"),
        ("eval_batch_step", [0, 2.5], "bad_value"),
        ("eval_batch_step", [0, 1, 2], "bad_value"),
        ("eval_batch_step", [-1, 5], "bad_value"),
    ],
)
def test_a_wrong_value_names_its_place(name: str, value: Any, code: str) -> None:
    with pytest.raises(ConfigError) as error:
        global_value(Config({"Global": {name: value}}, "my.yml"), name)
    assert error.value.code == code and str(error.value).startswith(f"my.yml: Global.{name}: ")
