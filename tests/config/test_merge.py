import pytest
from error_codes import raises_code

from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError

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


def test_later_overlays_win(overlay):
    assert overlay("Global: {epoch_num: 20}", "Global: {epoch_num: 30}").at("Global.epoch_num") == 30


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


def test_an_empty_mapping_or_null_on_either_side(overlay):
    config = overlay("Global: {pretrained_model: {path: x}}\nArchitecture: null\n")
    assert config.at("Global.pretrained_model.path") == "x"
    assert config["Architecture"] is None


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


def test_origins_survive_merging(overlay, tmp_path):
    config = overlay("Architecture: {Head: {head_list: [NRTRHead: {nrtr_dim: 256}]}}\nGlobal: {epoch_num: 3}")
    head = "Architecture.Head.head_list.NRTRHead"
    assert config.place(f"{head}.nrtr_dim").origin == str(tmp_path / "over1.yml")
    assert config.where("Global.epoch_num") == f"{tmp_path / 'over1.yml'}:2"
    assert config.place(head).origin == config.place("Global").origin == str(tmp_path / "base.yml")
    assert config.where("Architecture.Head.head_list.0.CTCHead.Neck.name") == f"{tmp_path / 'base.yml'}:7"


def test_bases_lie_below_the_file_that_names_them(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "root.yml").write_text("a: 1\nb: 1\nc: 1\nl: [x: 1, y: 1]\n")
    (tmp_path / "more.yml").write_text("b: 2\nc: 2\n")
    (tmp_path / "sub" / "top.yml").write_text("_BASE_: [../root.yml, ../more.yml]\nc: 3\nl: [y: !remove ]\n")
    config = load(tmp_path / "sub" / "top.yml")
    assert config == {"a": 1, "b": 2, "c": 3, "l": [{"x": 1}]}
    assert config.place("b").origin.endswith("more.yml")
    (tmp_path / "sub" / "last.yml").write_text("_BASE_: top.yml\nd: 4\n")
    assert load([tmp_path / "more.yml", tmp_path / "sub" / "last.yml"]) == {
        **config.thaw(),
        "d": 4,
    }


def test_the_same_base_by_two_ways_is_no_circle(tmp_path):
    (tmp_path / "root.yml").write_text("a: 1\n")
    (tmp_path / "left.yml").write_text("_BASE_: root.yml\nb: 2\n")
    (tmp_path / "right.yml").write_text("_BASE_: root.yml\nc: 3\n")
    (tmp_path / "top.yml").write_text("_BASE_: [left.yml, right.yml]\n")
    assert load(tmp_path / "top.yml") == {"a": 1, "b": 2, "c": 3}


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
