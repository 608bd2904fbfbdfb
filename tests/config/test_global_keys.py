"""The table of the keys of ``Global``: rules, defaults, and the reference that is written from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import ppocr_ext
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import FILLED_DEFAULTS, GLOBAL_KEYS, Settings
from ppocr_ext.errors import ConfigError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_each_default_follows_the_rule_of_its_key() -> None:
    assert [name for name, key in GLOBAL_KEYS.items() if key.problem(key.default) is not None] == []
    assert all(value is not None for value in FILLED_DEFAULTS.values())


def test_each_setting_is_a_key_with_the_type_of_its_default() -> None:
    types = get_type_hints(Settings)
    assert set(types) <= set(GLOBAL_KEYS)
    odd = {
        name: type(default)
        for name, hint in types.items()
        if (default := GLOBAL_KEYS[name].default) is not None
        and type(default) not in (hint, *get_args(hint))
        and hint is not Any
        and not (hint is float and isinstance(default, int))
        and default not in get_args(hint)
    }
    assert odd == {}


def test_only_config_and_check_read_keys_of_global() -> None:
    package = Path(ppocr_ext.__file__).parent
    reading = re.compile(r"""\.at\(f?["'(]+Global|\w\["Global"\]""")
    readers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if reading.search(file.read_text(encoding="utf-8"))
    }
    # two get the plain config from PaddleOCR, two write the one that it receives
    plain = {
        f"{name}.py"
        for name in ("modeling/__init__", "synth/synthetic_dataset", "run/dry_step", "run/host_config")
    }
    assert {name for name in readers - plain if not name.startswith(("config/", "check/"))} == set()


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
        getattr(Config({"Global": {name: value}}, "my.yml").settings, name)
    assert error.value.code == code and str(error.value).startswith(f"my.yml: Global.{name}: ")
