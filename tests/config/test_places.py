"""Values keep the place where they were written, whatever the program makes of the config around them."""

from __future__ import annotations

from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config, fit_center_losses, load, switch_features_on, with_class_counts
from ppocr_ext.config.node import PlaceKind
from ppocr_ext.errors import ConfigError
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


def test_an_empty_part_keeps_its_place_if_a_value_in_it_is_computed(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("Loss:\n  name: MultiLoss\n  loss_config_list:\n  - SARLoss:\n")
    config = with_class_counts(load([tmp_path / "a.yml"]), Charset(("a",)))
    assert config.at(f"{LISTED}.SARLoss.ignore_index") == 3
    assert config.where(f"{LISTED}.SARLoss") == f"{tmp_path / 'a.yml'}:4"


def test_values_that_are_put_elsewhere_keep_their_places(alone: Path) -> None:
    config = load([alone])
    moved = Config().with_values({"Loss": [config.at("Loss"), {"new": config.node("Loss.name")}], "a": 1})
    assert moved.where("Loss.0.use_focal_loss") == f"{alone}:8"
    assert moved.where("Loss.1.new") == f"{alone}:7"
    assert moved.place("Loss.1").kind is moved.place("a").kind is PlaceKind.COMPUTED


# Values under ``computed`` are not given: they are computed again when the file is read

HEAD = "Architecture.Head"
LIST = f"{HEAD}.out_channels_list"
PLAIN = {
    "Global": {"return_feats": True, "epoch_num": 2},
    "Architecture": {
        "Head": {
            "name": "MultiHead",
            "head_list": [{"CTCHead": {"Head": {"return_feats": False}}}, {"SARHead": {"enc_dim": 8}}],
        }
    },
    "Loss": {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"SARLoss": None}]},
    "PostProcess": {"name": "CTCLabelDecode"},
}
IGNORE = "Loss.loss_config_list.SARLoss.ignore_index"
FEATURES = f"{HEAD}.head_list.0.CTCHead.Head.return_feats"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A config as a run writes it."""
    config = with_class_counts(switch_features_on(Config(PLAIN, origin="a.yml")), Charset(("a", "b")))
    (tmp_path / "config.yml").write_text(config.to_yaml())
    return tmp_path / "config.yml"


def test_they_are_computed_again(written: Path) -> None:
    config = load(written, ["Global.return_feats=false"])
    assert config.at(LIST, None) is None and config.at(IGNORE, None) is None
    assert "computed" not in config
    assert switch_features_on(config).at(FEATURES, None) is None
    again = with_class_counts(config, Charset(("a", "b", "c")))
    assert again.at(LIST) == {"CTCLabelDecode": 4, "SARLabelDecode": 6}
    assert load(written) == load(written).with_values({})
    assert with_class_counts(switch_features_on(load(written)), Charset(("a", "b"))).at("computed") == (
        FEATURES,
        LIST,
        IGNORE,
    )


def test_a_later_file_or_option_gives_them(written: Path) -> None:
    over = written.parent / "over.yml"
    over.write_text("Architecture: {Head: {out_channels_list: {CTCLabelDecode: 9}}}\n")
    for config in (load([written, over]), load(written, [f"{LIST}.CTCLabelDecode=9"])):
        assert config.at(LIST) == {"CTCLabelDecode": 9}
        assert with_class_counts(config, Charset(("a", "b"))).at(LIST)["CTCLabelDecode"] == 3


def test_what_was_computed_can_be_removed_as_before(written: Path) -> None:
    over = written.parent / "over.yml"
    over.write_text("Architecture: {Head: {out_channels_list: !remove }}\n")
    plain = load(written)
    assert load(written, [f"{LIST}=!remove"]) == load([written, over]) == plain
    assert load(written, [f"{LIST}.CTCLabelDecode=!remove", f"{IGNORE}=!remove"]) == plain


def test_an_overlay_s_computed_values_replace_nothing(written: Path) -> None:
    base = written.parent / "base.yml"
    base.write_text("Architecture: {Head: {out_channels_list: {CTCLabelDecode: 7}}}\n")
    assert load([base, written]).at(LIST) == {"CTCLabelDecode": 7}
    base.write_text("Architecture: {Head: {out_channels_list: null}}\n")
    assert load([base, written]).at(LIST) is None


def test_paths_that_are_not_there_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("A: {b: 1}\ncomputed: [A.c, X.y.z, A.b.c, A..b, '', A.l.3]\n")
    assert load(tmp_path / "a.yml") == {"A": {"b": 1}}


@pytest.mark.parametrize("value", ["A.b", "{A: b}", "[1]", "3", "null", "[[A]]"])
def test_another_form_is_refused(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.yml").write_text(f"A: {{b: 1}}\n\ncomputed: {value}\n")
    with raises_code(ConfigError, "bad_value", f"{tmp_path / 'a.yml'}:3: "):
        load(tmp_path / "a.yml")
