import copy
from collections.abc import Mapping

import pytest
from error_codes import raises_code

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError

PLAIN = {
    "A": {"b": {"c": 1, "none": None}, "list": [{"x": {"y": 1}}, {"z": None}], "nested": [[1, 2], [3]]},
    "B": 2.5,
}


@pytest.fixture
def config():
    return Config(copy.deepcopy(PLAIN))


def test_it_is_a_mapping_with_tuples_for_lists(config):
    assert isinstance(config, Mapping)
    assert isinstance(config["A"], Config)
    assert list(config) == ["A", "B"] and len(config) == 2
    assert {**config}["B"] == 2.5
    assert config["A"]["nested"] == ((1, 2), (3,))
    assert isinstance(config["A"]["list"][0], Config)
    with pytest.raises(KeyError):
        config["C"]


def test_it_cannot_be_changed(config):
    for name in ("_node", "anything"):
        with pytest.raises(AttributeError):
            setattr(config, name, 1)
    with pytest.raises(TypeError):
        config["B"] = 1
    with pytest.raises(TypeError):
        hash(config)


def test_a_thawed_copy_is_plain_and_independent(config):
    thawed = config.thaw()
    assert thawed == PLAIN and type(thawed["A"]["b"]) is dict and type(thawed["A"]["list"]) is list
    thawed["A"]["b"].pop("c")
    thawed["A"]["list"][0]["x"]["y"] = 9
    thawed["A"]["nested"][0].append(3)
    assert config == PLAIN


def test_equality_is_by_content(config):
    assert config == Config(PLAIN) == PLAIN
    assert config["A"] == PLAIN["A"]
    assert config != {**PLAIN, "B": 3} and config != 3
    assert Config({"a": [Config({"b": (1,)})]}) == {"a": [{"b": [1]}]}


def test_at(config):
    assert config.at("A.b.c") == 1
    assert config.at("A.list.x.y") == config.at("A.list.0.x.y") == config.at(("A", "list", 0, "x", "y")) == 1
    assert config.at("A.nested.0.1") == 2
    assert config.at("A.b.none") is None and config.at("A.b.none", 5) is None
    for path in ("A.b.x", "A.b.c.d", "A.b.none.x", "A.list.7", "A.list.q.y", "Q"):
        assert config.at(path, 5) == 5


@pytest.mark.parametrize(
    ("path", "code", "fact"),
    [
        ("A.bb", "missing_key", "Did you mean 'b'?"),
        ("Q", "missing_key", "A, B"),
        ("A.b.c.d", "missing_key", "A.b.c"),
        ("A..b", "bad_path", "A..b"),
        ("", "bad_path", ""),
    ],
)
def test_at_names_what_is_missing(config, path, code, fact):
    for read in (config.at, config.where):
        with raises_code(ConfigError, code, path, fact):
            read(path)


def test_a_key_that_stands_twice_is_ambiguous():
    config = Config({"l": [{"a": 1}, {"b": 2}, {"a": 3}]})
    with raises_code(ConfigError, "duplicate_key", "l.a", "l.0", "l.2"):
        config.at("l.a", None)
    assert config.at("l.2.a") == 3


def test_with_values(config):
    changed = config.with_values(
        {"A.b.c": [1, {"k": 2}], "A.new.deep": 1, ("A", "dotted.key"): 3, "A.list.z.q": 4}
    )
    assert config == PLAIN
    assert changed.at("A.b.c") == (1, {"k": 2})
    assert changed.at("A.new.deep") == 1
    assert changed["A"]["dotted.key"] == 3
    assert changed.at("A.list") == ({"x": {"y": 1}}, {"z": {"q": 4}})
    assert changed.where("A.b.c") == changed.where("A.new") == "computed"
    assert changed.with_values({"B": config["A"]}).at("B.b.c") == 1
    with raises_code(ConfigError, "not_a_mapping", "B.x"):
        config.with_values({"B.x": 1})
    with pytest.raises(TypeError):
        config.with_values({"B": {1, 2}})
