"""Names and places of a checkout's components, read from its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from error_codes import raises_code
from fake_checkout import write_checkout

from ppocr_ext.errors import HostError
from ppocr_ext.host.facade import Catalog, Source

BACKBONES = "ppocr.modeling.backbones"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(write_checkout(tmp_path) / "ppocr")


def test_names_are_those_that_the_builder_offers_for_recognition(catalog: Catalog) -> None:
    assert catalog.names("backbone") == ["Alias", "Net", "make_other"]
    assert catalog.names("loss") == ["TheirLoss"]
    assert catalog.names("schedule") == ["TheirSchedule"]
    assert catalog.names("optimizer") == []  # the file is not there
    assert catalog.names("neck") == []  # nor is the folder


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("Net", Source(f"{BACKBONES}.rec_net", "Net")),  # the det and e2e ones are called so too
        ("make_other", Source(f"{BACKBONES}.rec_other", "make_other")),  # a function
        ("Alias", Source(f"{BACKBONES}.rec_other", "Original")),
        ("Unlisted", Source(f"{BACKBONES}.rec_other", "Unlisted")),  # defined, though not offered
        ("DetOnly", Source(f"{BACKBONES}.det_only", "DetOnly")),
        ("Broken", Source(f"{BACKBONES}.rec_broken", "Broken")),  # found without being imported
        ("Nobody", None),
    ],
)
def test_find(catalog: Catalog, name: str, source: Source | None) -> None:
    assert catalog.find("backbone", name) == source


def test_a_helper_that_several_files_define_is_no_component(tmp_path: Path) -> None:
    catalog = Catalog(
        write_checkout(tmp_path, {f"{_BACKBONES}/rec_other.py": "class Other:\n    pass\n"}) / "ppocr"
    )
    assert catalog.find("backbone", "Helper") is None


_BACKBONES = "ppocr/modeling/backbones"


def test_imports_of_the_whole_package_name_and_under_conditions_count(tmp_path: Path) -> None:
    init = """\
from ppocr.losses.one_loss import OneLoss
from paddle import nn
from . import helpers
try:
    from .two_loss import TwoLoss
except ImportError:
    TwoLoss = None

def build_loss(config):
    if config["name"] == "ThreeLoss":
        from .three_loss import ThreeLoss
"""
    catalog = Catalog(write_checkout(tmp_path, {"ppocr/losses/__init__.py": init}) / "ppocr")
    assert catalog.names("loss") == ["OneLoss", "ThreeLoss", "TwoLoss"]
    assert catalog.find("loss", "OneLoss") == Source("ppocr.losses.one_loss", "OneLoss")


def test_source_that_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    catalog = Catalog(write_checkout(tmp_path, {"ppocr/losses/__init__.py": "def broken(:\n"}) / "ppocr")
    with raises_code(HostError, "unreadable_file", "losses/__init__.py"):
        catalog.names("loss")
