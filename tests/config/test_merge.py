"""Files over files: overlays, ``_BASE_``, and the shipped files that it finds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError
from ppocr_ext.io import resources

BASE = """
Global: {epoch_num: 10, pretrained_model: null}
Architecture:
  Head:
    name: MultiHead
    head_list:
      - CTCHead: {Neck: {name: svtr, dims: 120}, Head: null}
      - NRTRHead: {nrtr_dim: 384}
Loss:
  loss_config_list:
    - DML: {weight: 1.0}
    - CTCLoss: {weight: 1.0}
    - DML: {weight: 0.5}
Train:
  dataset:
    label_file_list: [a.txt, b.txt]
    transforms:
      - DecodeImage: {img_mode: BGR}
      - RecAug:
      - KeepKeys: {keep_keys: [image]}
"""


@pytest.fixture
def overlay(tmp_path):
    def overlay(*texts):
        paths = []
        for index, text in enumerate((BASE, *texts)):
            paths.append(tmp_path / ("base.yml" if index == 0 else f"over{index}.yml"))
            paths[-1].write_text(text, encoding="utf-8")
        return load(paths)

    return overlay


def test_mappings_merge_and_lists_and_scalars_replace(overlay):
    config = overlay(
        "Global: {epoch_num: 20, seed: 1}\nTrain: {dataset: {label_file_list: [c.txt]}}\nMetric: {name: RecMetric}"
    )
    assert config["Global"] == {"epoch_num": 20, "pretrained_model": None, "seed": 1}
    assert config.at("Train.dataset.label_file_list") == ("c.txt",)
    assert len(config.at("Train.dataset.transforms")) == 3
    assert list(config) == ["Global", "Architecture", "Loss", "Train", "Metric"]


def test_single_key_lists_merge_by_key_and_keep_their_order(overlay):
    config = overlay(
        """
        Architecture:
          Head:
            head_list:
              - SARHead: {enc_dim: 512}
              - NRTRHead: {num_decoder_layers: 2}
              - CTCHead: {Neck: {dims: 60}, Head: {return_feats: true}}
        """
    )
    assert config.at("Architecture.Head.head_list") == (
        {"CTCHead": {"Neck": {"name": "svtr", "dims": 60}, "Head": {"return_feats": True}}},
        {"NRTRHead": {"nrtr_dim": 384, "num_decoder_layers": 2}},
        {"SARHead": {"enc_dim": 512}},
    )


def test_remove(overlay):
    config = overlay(
        """
        Global: {pretrained_model: !remove }
        Architecture: {Head: {head_list: [NRTRHead: !remove , CTCHead: {Neck: {dims: !remove }}]}}
        Train: {dataset: {transforms: [RecAug: !remove ]}}
        Loss: !remove
        """
    )
    assert config["Global"] == {"epoch_num": 10}
    assert "Loss" not in config
    assert config.at("Architecture.Head.head_list") == (
        {"CTCHead": {"Neck": {"name": "svtr"}, "Head": None}},
    )
    assert [next(iter(item)) for item in config.at("Train.dataset.transforms")] == ["DecodeImage", "KeepKeys"]


def test_replace_puts_a_whole_list_or_mapping(overlay):
    config = overlay(
        """
        Global: !replace {seed: 1}
        Loss: {loss_config_list: !replace [CTCLoss: {weight: 2.0}]}
        Train: {dataset: {transforms: !replace [DecodeImage: , Extra: {x: 1}]}}
        """
    )
    assert config["Global"] == {"seed": 1}
    assert config.at("Loss.loss_config_list") == ({"CTCLoss": {"weight": 2.0}},)
    assert config.at("Train.dataset.transforms") == ({"DecodeImage": None}, {"Extra": {"x": 1}})


@pytest.mark.parametrize(
    ("text", "code", "place", "facts"),
    [
        (
            "Train: {dataset: {transforms: [RecConAug: ]}}",
            "ordered_list",
            "over1.yml:1: Train.dataset.transforms ",
            ("RecConAug", "!replace"),
        ),
        (
            "Loss: {loss_config_list: [CTCLoss: {weight: 2.0}]}",
            "duplicate_key",
            "base.yml:11: Loss.loss_config_list: ",
            ("DML", "0, 2", "!replace"),
        ),
        (
            "Architecture: {Head: {head_list: [CTCHead: , CTCHead: ]}}",
            "duplicate_key",
            "over1.yml:1: Architecture.Head.head_list: ",
            ("CTCHead", "0, 1"),
        ),
        (
            "Architecture:\n  Head:\n    head_list:\n    - NRTRHead:\n      nrtr_dim: 256\n",
            "several_keys",
            "over1.yml:4: Architecture.Head.head_list: ",
            ("item 0", "NRTRHead, nrtr_dim"),
        ),
        (
            "Global: {epoch_nun: !remove }",
            "nothing_to_remove",
            "over1.yml:1: Global.epoch_nun: ",
            ("'epoch_num'",),
        ),
        (
            "Architecture: {Head: {head_list: [SARHead: !remove ]}}",
            "nothing_to_remove",
            "over1.yml:1: Architecture.Head.head_list.SARHead: ",
            ("'NRTRHead'",),
        ),
        ("New: {x: {y: !remove }}", "nothing_to_remove", "over1.yml:1: New.x.y: ", ()),
    ],
)
def test_overlays_that_would_surprise_are_refused(overlay, tmp_path, text, code, place, facts):
    with raises_code(ConfigError, code, place, *facts):
        overlay(text)


def test_bases_lie_below_the_file_that_names_them(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "root.yml").write_text("a: 1\nb: 1\nc: 1\nl: [x: 1, y: 1]\n")
    (tmp_path / "more.yml").write_text("b: 2\nc: 2\n")
    (tmp_path / "sub" / "top.yml").write_text("_BASE_: [../root.yml, ../more.yml]\nc: 3\nl: [y: !remove ]\n")
    config = load(tmp_path / "sub" / "top.yml")
    assert config == {"a": 1, "b": 2, "c": 3, "l": [{"x": 1}]}
    assert config.place("b").origin.endswith("more.yml")
    (tmp_path / "sub" / "last.yml").write_text(
        "_BASE_: [top.yml, ../root.yml]\nd: 4\n"
    )  # root.yml by two ways
    assert load([tmp_path / "more.yml", tmp_path / "sub" / "last.yml"]).at("d") == 4


def test_bases_that_cannot_be_followed(tmp_path):
    (tmp_path / "a.yml").write_text("_BASE_: b.yml\n")
    (tmp_path / "b.yml").write_text("x: 1\n_BASE_: a.yml\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "a.yml")
    assert caught.value.code == "base_cycle"
    assert str(caught.value).index("a.yml → ") < str(caught.value).index("b.yml → ")
    (tmp_path / "b.yml").write_text("x: 1\n_BASE_: none.yml\n")
    with raises_code(ConfigError, "unreadable_file", "none.yml", "b.yml:2"):
        load(tmp_path / "b.yml")
    (tmp_path / "b.yml").write_text("_BASE_: {x: 1}\n")
    with raises_code(ConfigError, "bad_value", f"{tmp_path / 'b.yml'}:1"):
        load(tmp_path / "b.yml")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for configs; the package is installed elsewhere, and the current folder is a third one."""
    package = tmp_path / "site-packages" / "ppocr_ext"
    shutil.copytree(resources.config_root(), package / "configs")
    monkeypatch.setattr(resources, "_PACKAGE", package)
    for name in ("mine", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "mine"


@pytest.mark.parametrize("name", ["configs/svtrv2/distill.yml", "[configs/svtrv2/data.yml, more.yml]"])
def test_a_shipped_file_is_a_base(mine: Path, name: str) -> None:
    (mine / "my.yml").write_text(f"_BASE_: {name}\nGlobal: {{epoch_num: 3}}\n")
    (mine / "more.yml").write_text("_BASE_: configs/svtrv2/heads.yml\n")
    config = load(mine / "my.yml")
    assert config.at("Global.epoch_num") == 3
    assert config.where("Global.log_smooth_window").startswith("configs/svtrv2/data.yml:")


def test_the_file_beside_goes_before_the_shipped_one(mine: Path) -> None:
    (mine / "configs/svtrv2").mkdir(parents=True)
    (mine / "configs/svtrv2/data.yml").write_text("Global: {seed: 5}\n")
    (mine / "my.yml").write_text("_BASE_: configs/svtrv2/data.yml\n")
    assert load(mine / "my.yml") == {"Global": {"seed": 5}}
