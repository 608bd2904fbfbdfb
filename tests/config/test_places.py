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


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("A.b=1", PlaceKind.OPTION),
        ("+A.b=1", PlaceKind.FORCED_OPTION),
        ("A={b: 1}", PlaceKind.OPTION),
    ],
)
def test_an_option_is_a_kind_of_its_own(tmp_path: Path, option: str, kind: PlaceKind) -> None:
    (tmp_path / "a.yml").write_text("A: {b: 0, c: 0}\n")
    config = load([tmp_path / "a.yml"], [option])
    assert config.place("A.b").kind is kind
    assert config.place("A.b").text == f"-o {option}"
    assert config.place("A.c").kind is PlaceKind.FILE
    assert config.with_values({"A.b": 2}).place("A.b").kind is PlaceKind.COMPUTED


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


def test_a_distillation_s_entry_keeps_its_places() -> None:
    config = fit_center_losses(load([config_path("svtrv2/distill.yml"), OVERLAY]))
    entry = f"{LISTED}.DistillationCenterLoss"
    assert config.where(entry) == f"configs/overlays/center_loss.yml:{line_of(OVERLAY, 'weight:')}"
    assert (
        config.where(f"{entry}.frames") == f"configs/overlays/center_loss.yml:{line_of(OVERLAY, 'frames:')}"
    )
    assert config.place(f"{entry}.model_name_list").kind is PlaceKind.COMPUTED
    dkd = f"{LISTED}.DistillationDKDLoss"
    assert config.place(f"{dkd}.alpha").text.endswith(
        f"distill.yml:{line_of(config_path('svtrv2/distill.yml'), 'alpha')}"
    )


def test_values_that_are_put_elsewhere_keep_their_places(alone: Path) -> None:
    config = load([alone])
    moved = Config().with_values({"Loss": [config.at("Loss"), {"new": config.node("Loss.name")}], "a": 1})
    assert moved.where("Loss.0.use_focal_loss") == f"{alone}:8"
    assert moved.where("Loss.1.new") == f"{alone}:7"
    assert moved.place("Loss.1").kind is moved.place("a").kind is PlaceKind.COMPUTED
