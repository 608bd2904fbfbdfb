"""PaddleOCR's own configs pass, and so do ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from official_facts import OFFICIAL, RESIZE, Check, facts, official, with_data

from ppocr_ext.config import Config, ctc_heads, load, switch_features_on
from ppocr_ext.io.resources import config_root

ROOT = config_root()
# a config of each form: paths of its CTC heads below Architecture, and what each says of its features
FORMS = {
    "ch_PP-OCRv2/ch_PP-OCRv2_rec.yml": {"Head": None},
    "ch_PP-OCRv2/ch_PP-OCRv2_rec_enhanced_ctc_loss.yml": {"Head": True},
    "ch_PP-OCRv2/ch_PP-OCRv2_rec_distillation.yml": {
        "Models.Teacher.Head": None,
        "Models.Student.Head": None,
    },
    "SVTRv2/ch_SVTRv2_rec": {"Head.head_list.0.CTCHead.Head": None},
    "SVTRv2/ch_SVTRv2_rec_distillation": {
        "Models.Teacher.Head.head_list.0.CTCHead.Head": None,
        "Models.Student.Head.head_list.0.CTCHead.Head": None,
    },
}
# what PaddleOCR's file leaves to the user
LEFT = {
    "SVTRv2/ch_SVTRv2_rec_distillation": ("missing_weights", "Architecture.Models.Teacher.pretrained"),
    "ch_PP-OCRv2/ch_PP-OCRv2_rec_enhanced_ctc_loss.yml": (
        "missing_centers",
        "Loss.loss_config_list.CenterLoss",
    ),
}
BROKEN = "PP-OCRv4/PP-OCRv4_mobile_rec_distillation.yml"
SHIPPED = sorted(
    str(path.relative_to(ROOT))
    for path in ROOT.rglob("*.yml")
    if path.stem in ("teacher", "student", "distill")
)


@pytest.mark.parametrize("name", [name for name in OFFICIAL if name != BROKEN])
def test_an_official_config_passes(name: str, data: Path, check: Check) -> None:
    expected = [("warning", *LEFT[name])] if name in LEFT else []
    assert facts(check(with_data(official(name), data))) == expected


def test_the_one_that_cannot_run_gets_each_line_that_it_lacks(data: Path, check: Check) -> None:
    """PaddleOCR's head fails on tokens that it does not pool, and on 256 features where it was built for 192."""
    config = Config(with_data(official(BROKEN), data))
    teacher, transforms = "Architecture.Models.Teacher", "Train.dataset.transforms"
    found = check(config)
    assert facts(found) == [
        ("error", "token_mismatch", f"{teacher}.Head.use_pool"),
        ("error", "token_mismatch", f"{teacher}.Backbone.out_channels"),
        ("error", "missing_resize", transforms),
        ("warning", "missing_weights", f"{teacher}.pretrained"),
    ]
    lines = ("`use_pool: true`", "`out_channels: 256`", "`- RecResizeImg: {image_shape: [3, 48, 320]}`")
    assert all(line in issue.message for line, issue in zip(lines, found[:-1], strict=True))
    listed = config.thaw()["Train"]["dataset"]["transforms"]
    values = {
        f"{teacher}.Head.use_pool": True,
        f"{teacher}.pretrained": str(data / "teacher"),
        f"{teacher}.Backbone.out_channels": 256,
        transforms: [*listed[:-1], RESIZE, listed[-1]],
    }
    assert check(config.with_values(values)) == []


@pytest.mark.parametrize("name", FORMS)
def test_the_overlay_of_features_fits_an_official_config(
    name: str, data: Path, tmp_path: Path, check: Check
) -> None:
    file = tmp_path / "config.yml"
    file.write_text(Config(with_data(official(name), data)).to_yaml())
    plain, config = load([file]), load([file, ROOT / "overlays" / "return_feats.yml"])
    assert check(config) == check(plain)
    switched = switch_features_on(config)
    assert [".".join(path[1:]) for path in ctc_heads(config)] == list(FORMS[name])
    for path, before in FORMS[name].items():
        head = plain.at(f"Architecture.{path}")
        assert head.get("return_feats") is before
        assert switched.at(f"Architecture.{path}") == {**head, "return_feats": True}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_config_lacks_only_files(name: str, check: Check) -> None:
    assert len(SHIPPED) > 10
    found = check(load([ROOT / name]))
    files = ("missing_file", "missing_folder")
    assert [f for f in found if f.code not in files and f.path != "Global.character_dict_path"] == []


def test_a_right_config_has_no_issues(one: Config, two: Config, check: Check) -> None:
    assert check(one) == check(two) == check(one, "eval") == check(two, "eval") == []
