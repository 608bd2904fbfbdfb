"""Every shipped config learns a batch by heart, at reduced size: narrow networks, small images, short texts.

Kinds of layers, heads, losses and optimizers are those of the config; widths, depths and the learning rate are not.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ppocr_ext.config import Config, load
from ppocr_ext.io.resources import config_root
from ppocr_ext.modeling.backbones import pphgnet, pplcnet, repsvtr
from ppocr_ext.sanity.learning import TOGETHER, learn
from ppocr_ext.sanity.subject import open_subject
from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

pytestmark = pytest.mark.e2e
ROOT = config_root()
PARTS = (
    "base",
    "single",
    "data",
    "pairs",
    "heads",
    "distill_teacher",
    "v3_data",
    "run",
    "center",
    "tune",
)  # of other configs
CONFIGS = sorted(
    str(file.relative_to(ROOT).with_suffix(""))
    for file in ROOT.rglob("*.yml")
    if file.stem not in PARTS and file.parent.name != "overlays"
)
OF_PP_OCR = [name for name in CONFIGS if "pp" in name.split("/")[-2]]
OTHERS = [name for name in CONFIGS if name not in OF_PP_OCR]
WIDTH, SAMPLES, STEPS = 48, 3, 150
LONGEST = 4  # one or two digits and the marks at both ends
RATE = 0.002  # of networks of this width; the rates of fine-tuning and of large networks are lower
NARROW: dict[str, Any] = {
    "nrtr_dim": 32, "enc_dim": 32, "d_k": 32, "scale": 0.25, "hidden_size": 32, "mid_channels": 32,
    "dims": 32, "hidden_dims": 32, "pretrained": None, "pretrained_dict": None,
}  # fmt: skip
SVTRV2 = {"dims": [16, 32, 96], "depths": [1, 2, 1], "num_heads": [1, 1, 3]}
MIXER = [["Conv"], ["Conv", "Global"], ["Global"]]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    options = CaptchaOptions(length=(1, 2), width=WIDTH, height=48)
    make_folder(folder, DatasetFolder(CaptchaSource(options, seed=3), train=12, val=2))
    return folder


@pytest.fixture
def narrow_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide the channels of the backbones that no config can make narrower."""

    def quarter(entry: tuple[Any, ...], count: int) -> tuple[Any, ...]:
        return (*(each // 4 for each in entry[:count]), *entry[count:])

    for name in ("SMALL_STAGES", "B4_STAGES"):
        monkeypatch.setattr(pphgnet, name, tuple(quarter(stage, 3) for stage in getattr(pphgnet, name)))
    monkeypatch.setattr(pphgnet, "STEM", quarter(pphgnet.STEM, 3))
    monkeypatch.setattr(pphgnet, "CLASSES", 2)
    monkeypatch.setattr(repsvtr, "BLOCKS", tuple((c // 4, *rest) for c, *rest in repsvtr.BLOCKS))
    sizes = {
        name: (
            channels // 3,
            {stage: tuple(quarter(b, 1) for b in blocks) for stage, blocks in stages.items()},
        )
        for name, (channels, stages) in pplcnet.SIZES.items()
    }
    monkeypatch.setattr(pplcnet, "SIZES", sizes)


def narrow(value: Any) -> Any:
    """Return options with narrow layers, images of `WIDTH`, and no file of weights."""
    if isinstance(value, list):
        return [narrow(each) for each in value]
    if not isinstance(value, dict):
        return value
    small = {key: narrow(each) for key, each in value.items()}
    small |= {key: NARROW[key] for key in value.keys() & NARROW.keys() if not isinstance(value[key], list)}
    if value.get("name") == "SVTRv2":
        small |= {**SVTRV2, "mixer": MIXER}
    if str(value.get("name")).startswith("PP"):
        small["train_frames"] = "width"  # else 40 frames of the same columns
    if value.get("name") == "PPLCNetV3":
        small["conv_kxk_num"] = 1
    if "img_size" in value:  # of a ViT
        small |= {"depth": 1, "img_size": [value["img_size"][0], WIDTH]}
    if "model_name_pairs" in value:  # the teacher has random weights: what it teaches is noise
        small["weight"] = 0.1 * value["weight"]
    if "NRTRHead" in value:
        small["NRTRHead"] |= {"num_decoder_layers": 1, "max_text_length": LONGEST}
    if "SARHead" in value:
        small["SARHead"] |= {"max_text_length": LONGEST}
    if "image_shape" in value:
        small["image_shape"] = [3, min(value["image_shape"][1], 48), WIDTH]
    if "scales" in value:
        small["scales"] = [[WIDTH, height] for _, height in value["scales"]]
    return small


def reduced(name: str, data: Path) -> Config:
    config = Config(narrow(load([ROOT / f"{name}.yml"]).thaw()))
    own = ("size", "characters", "length", "width", "height", "seed", "fonts", "texts")  # of drawn images
    changes: dict[str, Any] = {
        "Global.character_dict_path": str(data / "dict.txt"),
        "Global.use_space_char": False,
        "Global.use_gpu": False,
        "Global.pretrained_model": None,
        "Global.max_text_length": LONGEST,
        "Optimizer.lr.learning_rate": RATE,
    }
    for mode, file in (("Train", "train_list.txt"), ("Eval", "val_list.txt")):
        dataset = {k: v for k, v in config.at(f"{mode}.dataset").thaw().items() if k not in own}
        drawn = dataset["name"] in ("CaptchaDataSet", "TextLineDataSet")
        files = {"data_dir": str(data), "label_file_list": [str(data / file)]}
        changes[f"{mode}.dataset"] = {**dataset, **files, **({"name": "SimpleDataSet"} if drawn else {})}
    return config.with_values(changes)


def test_there_are_configs() -> None:
    assert {"quickstart/distill", "svtrv2/teacher", "pp-ocr/v6_tiny", "captcha/vit_nrtr"} <= set(CONFIGS)
    assert len(CONFIGS) >= 37


def trained(config: Config) -> str:
    """Name what the config trains and by which loss; the same for configs that differ in data or teacher alone."""
    architecture = config.at("Architecture").thaw()
    models = architecture.get("Models", {})
    architecture["Models"] = {name: each for name, each in models.items() if not each.get("freeze_params")}
    return json.dumps([architecture, config.at("Loss").thaw()], sort_keys=True)


@pytest.mark.parametrize("names", [OF_PP_OCR, OTHERS], ids=["pp-ocr", "others"])
@pytest.mark.usefixtures("narrow_tables")
def test_shipped_configs_learn(names: list[str], digits: Path) -> None:
    """All heads together; each head apart in a config of one network, but for teachers."""
    configs = {name: reduced(name, digits) for name in names}
    unlike: dict[str, str] = {}
    for name, config in configs.items():
        unlike.setdefault(trained(config), name)
    failed = []
    for name in unlike.values():
        subject = open_subject(configs[name], SAMPLES)
        heads = len(subject.heads())
        lessons = learn(subject, STEPS)
        # the networks of the others are trained by configs of their own, or are wider ones of the same kind
        alone = not any(word in Path(name).stem for word in ("distill", "teacher"))
        found = list(lessons if alone else islice(lessons, heads))
        assert [each.way for each in found[:heads]] == [TOGETHER] * heads
        failed += [
            f"{name}: {each.head.name} {each.way} {each.points[-1]}" for each in found if not each.passed
        ]
    assert failed == []
