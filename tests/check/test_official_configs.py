"""PaddleOCR's own configs pass, and so do ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from official_facts import OFFICIAL, Check, facts, official, with_data

from ppocr_ext.config import Config, ctc_heads, load, switch_features_on
from ppocr_ext.io.resources import config_root
from ppocr_ext.modeling import backbones  # noqa: F401 - registers ours
from ppocr_ext.registry import BACKBONES

ROOT = config_root()
SHIPPED = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.rglob("*.yml")
    if path.stem in ("teacher", "student", "distill")
)


@pytest.mark.parametrize("name", OFFICIAL)
def test_an_official_config_passes_or_lacks_its_backbone_alone(name: str, data: Path, check: Check) -> None:
    backbone = OFFICIAL[name][1]
    found = check(with_data(official(name), data))
    if isinstance(backbone, dict) or backbone in BACKBONES:
        assert found == []
    else:
        assert facts(found) == [("error", "unknown_component", "Architecture.Backbone.name")]
        assert backbone in found[0].message and "`--host DIR`" in found[0].message


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_overlay_of_features_fits_an_official_config(
    name: str, data: Path, tmp_path: Path, check: Check
) -> None:
    file = tmp_path / "config.yml"
    file.write_text(Config(with_data(official(name), data)).to_yaml())
    config = load([file, ROOT / "overlays" / "return_feats.yml"])
    assert check(config) == check(load([file]))
    heads = [switch_features_on(config).at(path) for path in ctc_heads(config)]
    assert len(heads) == (2 if "distillation" in name else 1)
    assert all(head["return_feats"] is True and len(head) > 1 for head in heads)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_config_lacks_only_files(name: str, check: Check) -> None:
    assert len(SHIPPED) > 10
    found = check(load([ROOT / name]))
    files = ("missing_file", "missing_folder")
    assert [f for f in found if f.code not in files and f.path != "Global.character_dict_path"] == []


def test_a_right_config_has_no_issues(one: Config, two: Config, check: Check) -> None:
    assert check(one) == check(two) == check(one, "eval") == check(two, "eval") == []
