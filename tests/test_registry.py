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


def test_a_misspelt_key_names_the_nearest(registry):
    with raises_code(ConfigError, "unknown_key", "'width'"):
        registry.build("Net", {"widht": 8})


def test_a_missing_key_is_named(registry):
    with raises_code(ConfigError, "missing_key", "backbone Net", "width"):
        registry.build("Net", {})


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
