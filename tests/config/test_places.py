"""Values keep the place where they were written, whatever the program makes of the config around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, fit_center_losses, load, switch_features_on, with_class_counts
from ppocr_ext.config.node import PlaceKind
from ppocr_ext.io.resources import config_path

OVERLAY = config_path("overlays/center_loss.yml")
LISTED = "Loss.loss_config_list"


def line_of(file: Path, text: str) -> int:
    return next(i for i, line in enumerate(file.read_text().splitlines(), 1) if text in line)


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    (tmp_path / "my.yml").write_text(
        "Global: {character_dict_path: d.txt, return_feats: true}\n"
        "Architecture:\n  Head:\n    name: CTCHead\n"
        "Optimizer: {lr: {learning_rate: 0.001}}\n"
        "Loss:\n  name: CTCLoss\n  use_focal_loss: true\n"
    )
    return tmp_path / "my.yml"


def test_what_is_moved_keeps_its_places(alone: Path) -> None:
    config = fit_center_losses(load([alone, OVERLAY], ["Loss.zzz=1", "+Loss.yyy=1"]))
    assert config.where(f"{LISTED}.CTCLoss") == f"{alone}:7"
    assert config.where(f"{LISTED}.CTCLoss.use_focal_loss") == f"{alone}:8"
    assert config.place(f"{LISTED}.CTCLoss.zzz").kind is PlaceKind.OPTION
    assert config.place(f"{LISTED}.CTCLoss.yyy").kind is PlaceKind.FORCED_OPTION
    assert (
        config.where(f"{LISTED}.CenterLoss.weight")
        == f"configs/overlays/center_loss.yml:{line_of(OVERLAY, 'weight:')}"
    )


def test_a_computed_value_has_the_place_of_its_source(alone: Path) -> None:
    config = fit_center_losses(load([alone, OVERLAY]))
    config = with_class_counts(switch_features_on(config), Charset(("a",)))
    for path, line in (
        (f"{LISTED}.CTCLoss.weight", 7),
        ("Loss.name", 7),
        ("Architecture.Head.out_channels", 1),
        ("Architecture.Head.return_feats", 1),
    ):
        assert config.where(path) == f"{alone}:{line}", path
        assert config.place(path).kind is PlaceKind.COMPUTED
    (shown,) = (line for line in config.to_yaml(origins=True).splitlines() if "CombinedLoss" in line)
    assert shown.endswith("# computed")


def test_values_that_are_put_elsewhere_keep_their_places(alone: Path) -> None:
    config = load([alone])
    moved = Config().with_values({"Loss": [config.at("Loss"), {"new": config.node("Loss.name")}], "a": 1})
    assert moved.where("Loss.0.use_focal_loss") == f"{alone}:8"
    assert moved.where("Loss.1.new") == f"{alone}:7"
    assert moved.place("Loss.1").kind is moved.place("a").kind is PlaceKind.COMPUTED
