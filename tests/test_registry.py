import logging

import pytest
from error_codes import raises_code

from ppocr_ext.errors import ConfigError, UnknownComponentError
from ppocr_ext.registry import Registry


class Net:
    def __init__(self, width, depth=2):
        self.width, self.depth = width, depth


@pytest.fixture
def registry():
    registry = Registry("backbone")
    registry.register()(Net)
    return registry


def test_builds_with_the_options_of_a_config_and_leaves_them_alone(registry):
    options = {"width": 8}
    assert registry.build("Net", options).width == 8
    assert options == {"width": 8}


def test_what_the_program_supplies_is_passed_where_it_is_taken(registry):
    assert registry.build("Net", {}, width=3, in_channels=3).width == 3


def test_a_misspelt_key_names_the_nearest(registry):
    with raises_code(ConfigError, "unknown_key", "'width'"):
        registry.build("Net", {"widht": 8})


def test_another_unknown_key_is_left_out_with_a_warning(registry):
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logger = logging.getLogger("ppocr_ext")
    logger.addHandler(handler)
    try:
        assert registry.build("Net", {"width": 8, "local_k": 5}).depth == 2
    finally:
        logger.removeHandler(handler)
    assert any("local_k" in message for message in seen)


def test_a_missing_key_is_named(registry):
    with raises_code(ConfigError, "missing_key", "backbone Net", "width"):
        registry.build("Net", {})


def test_a_name_that_we_lack_comes_from_the_host(registry):
    class Theirs:
        pass

    registry.set_fallback({"Theirs": Theirs}.get, lambda: ["Theirs"])
    assert isinstance(registry.build("Theirs", {}), Theirs)


def test_an_unknown_name_lists_both_sets(registry):
    registry.set_fallback(lambda name: None, lambda: ["ResNet"])
    with raises_code(UnknownComponentError, "unknown_component", "ppocr_ext: Net.", "host: ResNet."):
        registry.get("VGG")


def test_ours_go_before_the_hosts(registry):
    registry.set_fallback({"Net": dict}.get, lambda: ["Net"])
    assert registry.get("Net") is Net


def test_two_components_under_one_name_are_refused(registry):
    with pytest.raises(ValueError):
        registry.register("Net")(dict)
