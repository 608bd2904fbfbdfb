"""PaddleOCR's recognition configs, written from the stored facts about them, and the values that a test changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppocr_ext.config import Config

_FACTS = Path(__file__).parent / "fixtures" / "networks" / "configs_facts.json"
# Without `model_name`, which PaddleOCR passes to the decoder: the files of a distillation do not have it.
_GLOBAL = {
    "debug": False,
    "use_gpu": True,
    "distributed": True,
    "use_visualdl": False,
    "infer_mode": False,
    "cal_metric_during_train": True,
    "log_smooth_window": 20,
    "print_batch_step": 10,
    "save_epoch_step": 10,
    "eval_batch_step": [0, 2000],
    "save_model_dir": "./output/rec",
    "save_res_path": "./output/rec/predicts.txt",
    "infer_img": "doc/imgs_words/ch/word_1.jpg",
    "pretrained_model": None,
    "checkpoints": None,
    "save_inference_dir": None,
    "d2s_train_image_shape": [3, 48, 320],
    "calc_epoch_interval": 1,
}
_DECODE = {"DecodeImage": {"img_mode": "BGR", "channel_first": False}}


def stored_facts() -> dict[str, dict[str, Any]]:
    """Return the facts of each config by its name, as `PP-OCRv5/PP-OCRv5_mobile_rec.yml`."""
    facts: dict[str, dict[str, Any]] = json.loads(_FACTS.read_text(encoding="utf-8"))["configs"]
    return facts


def config_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config that the facts of one official file describe."""
    dictionary, length = facts["dictionary"], facts["max_text_length"]
    of_file = {} if length is None else {"max_text_length": length}
    return {
        "Global": {
            **_GLOBAL,
            **of_file,
            **(facts["amp"] or {}),
            "epoch_num": facts["epochs"],
            "character_dict_path": dictionary["file"],
            "use_space_char": dictionary["use_space_char"],
        },
        "Architecture": facts["architecture"],
        "Optimizer": facts["optimizer"],
        "Loss": facts["loss"],
        "PostProcess": facts["postprocess"],
        "Metric": facts["metric"],
        "Train": _train(facts),
        "Eval": _evaluate(facts),
    }


def _train(facts: Mapping[str, Any]) -> dict[str, Any]:
    options = {
        **_DECODE,
        "RecConAug": facts["RecConAug"],
        "MultiLabelEncode": _encode(facts),
        "RecResizeImg": {"image_shape": facts["train_image_shape"]},
        "KeepKeys": {"keep_keys": facts["keep_keys"]},
    }
    dataset = {
        "name": facts["train_dataset"],
        "data_dir": "./train_data/",
        "ext_op_transform_idx": 1,
        "label_file_list": ["./train_data/train_list.txt"],
        "transforms": [{name: options.get(name)} for name in facts["train_transforms"]],
    }
    loader = {"batch_size_per_card": facts["batch_size_per_card"], "num_workers": 8}
    section = {"dataset": dataset, "loader": {"shuffle": True, "drop_last": True, **loader}}
    if facts["train_sampler"] is None:
        return section
    return {**section, "dataset": {**dataset, "ds_width": False}, "sampler": facts["train_sampler"]}


def _evaluate(facts: Mapping[str, Any]) -> dict[str, Any]:
    encoder = next(name for name in facts["train_transforms"] if name.endswith("LabelEncode"))
    shape = facts["image_shape_eval"]  # of RecResizeImg; one config has SVTRRecResizeImg instead
    resize = (
        {"SVTRRecResizeImg": {"image_shape": [3, 48, 320]}}
        if shape is None
        else {"RecResizeImg": {"image_shape": shape}}
    )
    keep = [key for key in facts["keep_keys"] if key != "label_ace"]  # only training has this label
    encode = {encoder: _encode(facts) if encoder == "MultiLabelEncode" else None}
    return {
        "dataset": {
            "name": "SimpleDataSet",
            "data_dir": "./train_data",
            "label_file_list": ["./train_data/val_list.txt"],
            "transforms": [_DECODE, encode, resize, {"KeepKeys": {"keep_keys": keep}}],
        },
        "loader": {"shuffle": False, "drop_last": False, "batch_size_per_card": 128, "num_workers": 4},
    }


def _encode(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    if "label_gtc" not in facts["keep_keys"]:
        return None
    # one file has max_text_length here, not in Global
    length = {"max_text_length": 25} if facts["max_text_length"] is None else {}
    return {"gtc_encode": "NRTRLabelEncode", **length}


def changed_values(config: Config, data: Path, batch: int) -> dict[str, Any]:
    """Return the values to give with ``-o``, by key: paths, sizes and the device.

    Args:
        config: the official one.
        data: folder with the label files `train_list.txt` and `val_list.txt`.
        batch: images of a batch. A MultiScaleSampler has as many at its first scale, and makes whole rounds of its
            scales.
    """
    values: dict[str, Any] = {
        "Global.use_gpu": False,
        "Global.epoch_num": 1,
        "Global.print_batch_step": 1,
        "Global.pretrained_model": None,
        "Global.allow_untrained_teacher": True,
        "Global.checkpoints": None,
    }
    for mode, name in (("Train", "train_list.txt"), ("Eval", "val_list.txt")):
        values |= {
            f"{mode}.dataset.data_dir": str(data),
            f"{mode}.dataset.label_file_list": [str(data / name)],
            f"{mode}.loader.batch_size_per_card": batch,
            f"{mode}.loader.num_workers": 0,
        }
    if config.at("Train.sampler", None):
        values["Train.sampler.first_bs"] = batch
    return values
