import datetime

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
        ("1.e-8", 1e-8),
        ("1.0e-5", 1e-5),
        ("+2E3", 2000.0),
        ("-.5e1", -5.0),
        ("1.5e8", 1.5e8),
        ("0.1", 0.1),
        (".inf", float("inf")),
    ],
)
def test_floats_as_people_write_them(read, text, value):
    found = read(f"x: {text}")["x"]
    assert isinstance(found, float)
    assert found == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'1e-3'", "1e-3"),
        ("e-3", "e-3"),
        ("1e", "1e"),
        ("1e-3a", "1e-3a"),
        ("12", 12),
        ("1e-3 # a comment", 1e-3),
        ("", None),
        ("~", None),
        ("True", True),
        ("=", "="),
        ("norm pos_embed", "norm pos_embed"),
        ("2024-05-01", datetime.date(2024, 5, 1)),
    ],
)
def test_other_scalars_are_read_as_yaml_reads_them(read, text, value):
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
    """
    config = read(text)
    assert config["one"] == {"a": 1, "b": 4, "c": {"d": 3}}
    assert config["two"] == {"b": 2, "e": 5, "a": 1, "c": {"d": 3}, "f": 25}
    assert config == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "code", "line", "fact"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate_key", 3, "line 1"),
        ("a:\n  - b: 1\n    b: 2\n", "duplicate_key", 3, "'b'"),
        ("x: &x {a: 1}\ny:\n  <<: *x\n  <<: *x\n", "duplicate_key", 4, "`<<: [*a, *b]`"),
        ("a: 1\n  b: 2\n", "invalid_yaml", 2, ""),
        ("a: [1, 2\nb: 3\n", "invalid_yaml", 2, ""),
        ("a: 1\n\tb: 2\n", "invalid_yaml", 2, ""),
        ("a: 1\nb: \x07\n", "invalid_yaml", 2, ""),
        ("a: 1\nb: *nobody\n", "invalid_yaml", 2, "undefined alias 'nobody'"),
        ("a: 1\n---\nb: 1\n", "invalid_yaml", 2, "expected a single document"),
        ("a: 1\nb: !!python/object/apply:os.system ['true']\n", "bad_tag", 2, "python/object"),
        ("a: !!python/name:os.system\n", "bad_tag", 1, ""),
        ("a: !!python/tuple [1]\n", "bad_tag", 1, ""),
        ("a: !rmove\n", "bad_tag", 1, "!rmove"),
        ("a: !replace 3\n", "invalid_yaml", 1, "!replace"),
        ("a: &a [*a]\n", "invalid_yaml", 1, "alias"),
        ("a: &a {b: {<<: *a}}\n", "invalid_yaml", 1, "<<"),
        ("a: {<<: 3}\n", "invalid_yaml", 1, "<<"),
        ("a: 2024-13-41\n", "bad_value", 1, "'2024-13-41'"),
        ("? [a, b]\n: 1\n", "invalid_yaml", 1, "key"),
        ("- a\n- b\n", "not_a_mapping", 1, ""),
        ("just words\n", "not_a_mapping", 1, ""),
        ("", "empty_file", None, ""),
        ("# nothing\n", "empty_file", None, ""),
        (b"a: 1\nb: \xff\n", "not_utf8", 2, "byte 8"),
        ("[" * 5000, "invalid_yaml", 1, ""),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(read, tmp_path, text, code, line, fact):
    place = tmp_path / "a.yml" if line is None else f"{tmp_path / 'a.yml'}:{line}"
    with raises_code(ConfigError, code, f"{place}: ", fact):
        read(text)


@pytest.mark.parametrize("link", ["[{alias}]", "{{<<: {alias}}}"])
def test_aliases_that_explode_are_refused(read, link):
    rows = ["k0: &k0 {a: 1, b: 2}" if "<<" in link else "k0: &k0 [1, 2]"]
    for i in range(1, 30):
        aliases = ", ".join([f"*k{i - 1}"] * 10)
        rows.append(f"k{i}: &k{i} " + link.format(alias=f"[{aliases}]" if "<<" in link else aliases))
    with raises_code(ConfigError, "too_many_values"):
        read("\n".join(rows))


def test_missing_file_and_folder(tmp_path):
    for paths, code, fact in (
        (tmp_path / "none.yml", "unreadable_file", "none.yml: "),
        ("G.a=3", "unreadable_file", "Put -o before it"),
        ([tmp_path], "unreadable_file", str(tmp_path)),
        ([], "missing_option", "-c FILE"),
    ):
        with raises_code(ConfigError, code, fact):
            load(paths)


def test_byte_order_mark_and_crlf_are_read(read):
    assert read("\ufeffa: 1\r\nb: 2\r\n") == {"a": 1, "b": 2}


def test_to_yaml_reads_back_equal_with_any_safe_loader(read, tmp_path):
    text = """
    z: 1
    a: &a [1, [2, 3]]
    b: *a
    floats: [1e-8, 1.0, 0.0002, 1e+20, -.inf]
    strings: ['1e-3', '1', 'true', 'null', '', ' ', '=', 'a: b', '# c', '\u3000', "x\\ny", '中文']
    more: ['2024-05-01', '!remove', '<<', 'no', '012', '1_000', '1:30', "x\\u2028y", "x\\x85 y"]
    signs: ['&a', '*a', '😀', '-', '[', '1e5', '-.5E+3']
    none:
    empty: {m: {}, l: []}
    3: number
    Loss: {loss_config_list: [{CTCLoss: }, {NRTRLoss: {smoothing: false}}]}
    """
    config = read(text)
    written = config.to_yaml()
    assert yaml.safe_load(written) == config.thaw()
    assert not [
        t for t in yaml.scan(written) if isinstance(t, (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken))
    ]
    assert list(yaml.safe_load(written)) == list(config)
    assert Config(yaml.safe_load(written)) == config
    (tmp_path / "again.yml").write_text(written, encoding="utf-8")
    again = load(tmp_path / "again.yml")
    assert again == config
    assert {type(v) for v in again["strings"] + again["more"] + again["signs"]} == {str}
