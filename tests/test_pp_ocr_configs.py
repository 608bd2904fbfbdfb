"""The configs of PP-OCR: networks of the official configs, one dictionary for both sides, weights that have a name."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import paddle
import pytest

from ppocr_ext.checkpoint.official_weights import table
from ppocr_ext.config import Config, load, resolve_charset, with_class_counts
from ppocr_ext.host import open_host
from ppocr_ext.io.resources import config_root
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model

FOLDER = config_root() / "pp-ocr"
FACTS = json.loads(
    (Path(__file__).parent / "fixtures/networks/configs_facts.json").read_text(encoding="utf-8")
)
OFFICIAL = {Path(name).stem: facts for name, facts in FACTS["configs"].items()}
SINGLE = sorted(file for file in FOLDER.glob("v[3-6]_*.yml") if file.stem != "v3_data")
PAIRS = sorted(FOLDER.glob("distill_*.yml"))
LARGER = [
    file for file in PAIRS if "svtrv2" not in file.stem
]  # taught by a larger model of the same generation
OF_SVTRV2 = [file for file in PAIRS if "svtrv2" in file.stem]


def official(model: dict[str, Any]) -> dict[str, Any]:
    """Backbone and head of an official config or of ours, in one form."""
    head = {
        name: {key: value for key, value in (options or {}).items() if key != "max_text_length"}
        for entry in model["Head"]["head_list"]
        for name, options in entry.items()
    }
    neck = head["CTCHead"]["Neck"]
    neck.setdefault("use_guide", False)
    return {"Backbone": model["Backbone"], "heads": head}


def plain(config: Config, path: str) -> dict[str, Any]:
    found: dict[str, Any] = config.at(path).thaw()
    return found


def of_dictionary(dictionary: str) -> Config:
    return Config({"Global": {"character_dict_path": dictionary, "use_space_char": True}})


def test_there_are_configs() -> None:
    assert len(SINGLE) == 8 and len(LARGER) == 4 and len(OF_SVTRV2) == 5


@pytest.mark.parametrize("page", ["docs/weights.md", "docs/zh/weights.md"])
def test_each_config_is_named(page: str) -> None:
    text = (Path(__file__).resolve().parents[1] / page).read_text(encoding="utf-8")
    bases = {"data.yml", "pairs.yml", "single.yml", "v3_data.yml"}
    own = {file.name for file in FOLDER.glob("*.yml")} - bases
    assert {name for name in own if f"`{name}`" not in text} == set()


def test_the_dictionary_of_official_weights_has_their_classes() -> None:
    found = {
        name: resolve_charset(of_dictionary(weights.dictionary), open_host().find_file).ctc_classes
        for name, weights in table().items()
        if weights.dictionary is not None
    }
    assert len(found) == 32
    assert found == {name: table()[name].classes for name in found}


@pytest.mark.parametrize("file", SINGLE, ids=lambda file: file.stem)
def test_a_config_is_of_the_network_of_its_weights(file: Path) -> None:
    config = load([file])
    weights = table()[config.at("Global.pretrained_model")]
    facts = OFFICIAL[weights.name]
    assert official(plain(config, "Architecture")) == official(facts["architecture"])
    assert config.at("Global.character_dict_path") == facts["dictionary"]["file"]
    charset = resolve_charset(config, open_host().find_file)
    assert charset.ctc_classes == facts["dictionary"]["ctc_classes"]
    if weights.dictionary is not None:  # that of PP-OCRv6's weights is not published
        assert weights.dictionary == facts["dictionary"]["file"] and weights.classes == charset.ctc_classes


def characters(dictionary: str) -> set[str]:
    return set(resolve_charset(of_dictionary(dictionary), open_host().find_file).characters)


@pytest.mark.parametrize("file", LARGER, ids=lambda file: file.stem)
def test_teacher_and_student_are_those_of_their_weights(file: Path) -> None:
    config = load([file])
    for name in ("Teacher", "Student"):
        weights = table()[config.at(f"Architecture.Models.{name}.pretrained")]
        ours = official(plain(config, f"Architecture.Models.{name}"))
        assert ours == official(OFFICIAL[weights.name]["architecture"])
        theirs = weights.dictionary or weights.config_dictionary
        if name == "Student":
            assert theirs == config.at("Global.character_dict_path")
        else:  # a frozen teacher cannot learn characters
            assert characters(config.at("Global.character_dict_path")) <= characters(str(theirs))
    assert config.at("Architecture.Models.Teacher.freeze_params") is True


@pytest.mark.parametrize("file", OF_SVTRV2, ids=lambda file: file.stem)
def test_a_student_of_svtrv2_is_that_of_its_generation(file: Path) -> None:
    config, alone = load([file]), load([FOLDER / f"{file.stem.removeprefix('distill_svtrv2_to_')}.yml"])
    assert official(plain(config, "Architecture.Models.Student")) == official(plain(alone, "Architecture"))
    assert config.at("Architecture.Models.Student.pretrained") == alone.at("Global.pretrained_model")
    dictionary = config.at("Global.character_dict_path")
    assert dictionary == alone.at("Global.character_dict_path")
    teacher, own = config.at("Architecture.Models.Teacher"), load([config_root() / "svtrv2/teacher.yml"])
    assert all(teacher.at(part) == own.at(f"Architecture.{part}") for part in ("Backbone", "Head"))
    assert teacher.at("freeze_params") is True
    weights = table()["ch_SVTRv2_rec"]  # serves where it knows all characters
    serves = characters(dictionary) <= characters(str(weights.dictionary))
    assert teacher.at("pretrained") == (weights.name if serves else "./output/svtrv2_teacher/best_accuracy")


@pytest.mark.parametrize("file", [*SINGLE, *PAIRS], ids=lambda file: file.stem)
def test_a_config_builds(file: Path, tmp_path: Path) -> None:
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text("0\n1\n2\n", encoding="utf-8")
    config = load([file], [f"Global.character_dict_path={dictionary}"])
    config = with_class_counts(config, resolve_charset(config, open_host().find_file))
    # without initial values, which take most of the time; Paddle's LSTM of the SAR head cannot be built so
    with nullcontext() if "v3" in file.stem else paddle.LazyGuard():
        assert build_model(plain(config, "Architecture")).state_dict()
    assert build_loss(plain(config, "Loss")).required_outputs()


def test_the_config_of_v2_is_the_official_one_but_for_rates() -> None:
    config = load([FOLDER / "v2_mobile.yml"])
    weights = table()[config.at("Global.pretrained_model")]
    facts = FACTS["configs"][str(weights.config).removeprefix("configs/rec/")]
    assert plain(config, "Architecture") == facts["architecture"]
    assert config.at("Global.character_dict_path") == facts["dictionary"]["file"] == weights.dictionary
    assert plain(config, "Loss") == facts["loss"] and plain(config, "Metric") == facts["metric"]
    assert plain(config, "Optimizer.regularizer") == facts["optimizer"]["regularizer"]
    transforms = plain(config, "Train")["dataset"]["transforms"]
    assert [name for each in transforms for name in each] == facts["train_transforms"]
    assert transforms[-2:] == [
        {"RecResizeImg": {"image_shape": facts["train_image_shape"]}},
        {"KeepKeys": {"keep_keys": facts["keep_keys"]}},
    ]
    config = with_class_counts(config, resolve_charset(config, open_host().find_file))
    assert build_model(plain(config, "Architecture")).state_dict()
