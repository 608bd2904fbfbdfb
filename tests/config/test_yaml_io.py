"""YAML is read as people write it, refused with its line, and written so that it reads back equal."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml
from error_codes import raises_code

from ppocr_ext.config import Config, load
from ppocr_ext.errors import ConfigError


@pytest.fixture
def read(tmp_path):
    def read(text, *overrides):
        path = tmp_path / "a.yml"
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return load(path, overrides)

    return read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1.0e-5", 1e-5),
        ("-.5e1", -5.0),
        (".inf", float("inf")),
        ("'1e-3'", "1e-3"),
        ("e-3", "e-3"),
        ("1e-3 # a comment", 1e-3),
        ("", None),
        ("True", True),
        ("=", "="),
        ("2024-05-01", datetime.date(2024, 5, 1)),
    ],
)
def test_floats_are_read_as_people_write_them_and_other_scalars_as_in_yaml(read, text, value):
    found = read(f"x: {text}")["x"]
    assert found == value
    assert type(found) is type(value)


def test_anchors_and_merge_keys(read):
    text = """
    Global: {length: &length 25}
    base: &base {a: 1, b: 2, c: {d: 3}}
    other: &other {b: 20, e: 5}
    one: {<<: *base, b: 4}
    two: {<<: [*base, *other], f: *length}
    three: {<<: *base, <<: *other}
    """
    config = read(text)
    assert config["one"] == {"a": 1, "b": 4, "c": {"d": 3}}
    assert config["two"] == {"b": 2, "e": 5, "a": 1, "c": {"d": 3}, "f": 25}
    assert config == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "line", "first"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1),
        ("a:\n  - b: 1\n    c: 3\n    b: {d: 2}\n", 4, 2),
    ],
)
def test_of_a_key_that_occurs_twice_the_last_counts_with_a_warning(read, caplog, text, line, first):
    """PaddleOCR reads it so; a Backbone without options may stand above the one that is meant."""
    assert read(text) == yaml.safe_load(text)
    (warning,) = caplog.messages
    assert f".yml:{line}: " in warning and f"line {first}." in warning


@pytest.mark.parametrize(
    ("text", "code", "line", "fact"),
    [
        ("a: 1\n  b: 2\n", "invalid_yaml", 2, ""),
        ("a: 1\n\tb: 2\n", "invalid_yaml", 2, ""),
        ("a: 1\nb 2\nc: 3\n", "invalid_yaml", 2, "colon"),
        ("a: 1\nb: [1, 2\nc: 3\n", "invalid_yaml", 2, "']'"),
        ("a: 1\nb: [\n1,\n2\n3: 4\n", "invalid_yaml", 2, "line 5"),
        ("a: 1\nb: 'open\nc: 3\n", "invalid_yaml", 2, ""),
        ("<!DOCTYPE html>\n<title>a: b: c</title>\n", "invalid_yaml", 1, "web page"),
        ("a: 1\nb: \x07\n", "invalid_yaml", 2, ""),
        ("a: 1\nb: *nobody\n", "invalid_yaml", 2, "undefined alias 'nobody'"),
        ("a: 1\n---\nb: 1\n", "invalid_yaml", 2, "expected a single document"),
        ("a: 1\nb: !!python/object/apply:os.system ['true']\n", "bad_tag", 2, "python/object"),
        ("a: !rmove\n", "bad_tag", 1, "!rmove"),
        ("a: !replace 3\n", "invalid_yaml", 1, "!replace"),
        ("a: &a [*a]\n", "invalid_yaml", 1, "alias"),
        ("a: &a {b: {<<: *a}}\n", "invalid_yaml", 1, "<<"),
        ("a: {<<: 3}\n", "invalid_yaml", 1, "<<"),
        ("a: 2024-13-41\n", "bad_value", 1, "'2024-13-41'"),
        ("? [a, b]\n: 1\n", "invalid_yaml", 1, "key"),
        ("- a\n- b\n", "not_a_mapping", 1, ""),
        ("", "empty_file", None, ""),
        (b"a: 1\nb: \xff\n", "not_utf8", 2, "byte 8"),
        ("[" * 5000, "invalid_yaml", 1, ""),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(read, tmp_path, text, code, line, fact):
    place = tmp_path / "a.yml" if line is None else f"{tmp_path / 'a.yml'}:{line}"
    with raises_code(ConfigError, code, f"{place}: ", fact):
        read(text)


def test_missing_file_and_folder(tmp_path):
    for paths, code, fact in (
        (tmp_path / "none.yml", "unreadable_file", "none.yml: "),
        ("G.a=3", "unreadable_file", "Put -o before it"),
        ([tmp_path], "unreadable_file", str(tmp_path)),
        ([], "missing_option", "-c FILE"),
    ):
        with raises_code(ConfigError, code, fact):
            load(paths)


def test_to_yaml_has_no_anchors_and_keeps_the_order(read):
    text = """
    z: 1
    a: &a [1, [2, 3]]
    b: *a
    floats: [1e-8, 1.0, 0.0002, 1e+20, -.inf]
    3: number
    Loss: {loss_config_list: [{CTCLoss: }, {NRTRLoss: {smoothing: false}}]}
    """
    config = read(text)
    written = config.to_yaml()
    marks = (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken)
    assert not [token for token in yaml.scan(written) if isinstance(token, marks)]
    assert list(yaml.safe_load(written)) == list(config)
    assert read(written) == Config(yaml.safe_load(written)) == config


NASTY = ["1e-3", "1", "0123", "1_000", "1:30", "1e5", "-.5E+3", "true", "no", "null", "", " ", "~", "=", "<<"]
NASTY += [
    "2020-01-01",
    " # no comment",
    "# c",
    "a: b",
    "- a",
    "-",
    "[1",
    "[",
    "&a",
    "*a",
    "!tag",
    "!remove",
    "%",
]
NASTY += ["@", "two\nlines\n", "\ttab "]
NASTY += ["'quoted' \"twice\"", "é中\U0001f600", "\u3000", "\u2028", "x\x85 y", "x" * 300, "word " * 60]


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
    for origins in (True, False):
        written = Config(values).to_yaml(origins=origins)
        assert yaml.safe_load(written) == values
        (tmp_path / "again.yml").write_text(written, encoding="utf-8")
        assert load([tmp_path / "again.yml"]).thaw() == values
