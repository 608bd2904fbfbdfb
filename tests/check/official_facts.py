"""What PaddleOCR's recognition configs of SVTRv2, PP-OCRv4 and PP-OCRv5 name, and the keys that they carry.

A value stands where a check looks at values, and is of the right type elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from official_configs import config_of, stored_facts

from ppocr_ext.issues import Issue

Check = Callable[..., list[Issue]]  # the fixture `check`


def facts(issues: list[Issue]) -> list[tuple[str, str, str]]:
    """Return level, code and path of each issue."""
    return [(issue.level, issue.code, issue.path) for issue in issues]


def only(issues: list[Issue]) -> Issue:
    """Return the only issue."""
    assert len(issues) == 1, issues
    return issues[0]


def errors_at(issues: list[Issue], path: str) -> list[Issue]:
    """Return the errors at ``path``."""
    return [issue for issue in issues if (issue.level, issue.path) == ("error", path)]


GLOBAL = {
    **dict.fromkeys(("debug", "use_gpu", "distributed", "use_visualdl", "use_space_char"), True),
    "infer_mode": False,
    "cal_metric_during_train": True,
    **dict.fromkeys(("epoch_num", "log_smooth_window", "print_batch_step", "save_epoch_step"), 10),
    **dict.fromkeys(("save_model_dir", "infer_img", "save_res_path"), "./output"),
    **dict.fromkeys(("pretrained_model", "checkpoints", "save_inference_dir")),
    "eval_batch_step": [0, 2000],
    "max_text_length": 25,
}
NECK = {"name": "svtr", "dims": 120, "depth": 2, "hidden_dims": 120, "kernel_size": [1, 3], "use_guide": True}
BACKBONES: dict[str, dict[str, Any]] = {
    "RepSVTR": {},
    "SVTRv2": {
        "use_pos_embed": False,
        "dims": [128, 256, 384],
        "depths": [6, 6, 6],
        "num_heads": [4, 8, 12],
        "mixer": [["Conv"] * 6, ["Conv"] * 2 + ["Global"] * 4, ["Global"] * 6],
        "local_k": [[5, 5], [5, 5], [-1, -1]],
        "sub_k": [[2, 1], [2, 1], [-1, -1]],
        "last_stage": False,
        "use_pool": True,
    },
}
ADAMW = {
    "name": "AdamW",
    "beta1": 0.9,
    "beta2": 0.99,
    "epsilon": 1.0e-8,
    "weight_decay": 0.05,
    "no_weight_decay_name": "norm",
    "one_dim_param_no_weight_decay": True,
}
COSINE = {"name": "Cosine", "learning_rate": 0.001, "warmup_epoch": 1}
DECODE = {"DecodeImage": {"img_mode": "BGR", "channel_first": False}}
ENCODE = {"MultiLabelEncode": {"gtc_encode": "NRTRLabelEncode"}}
KEEP = {"KeepKeys": {"keep_keys": ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]}}
RESIZE = {"RecResizeImg": {"image_shape": [3, 48, 320]}}
LOADER = {"shuffle": True, "batch_size_per_card": 192, "drop_last": True, "num_workers": 8}
SAMPLER = {
    "name": "MultiScaleSampler",
    "scales": [[320, 32], [320, 48], [320, 64]],
    "first_bs": 192,
    "fix_bs": False,
    "divided_factor": [8, 16],
    "is_training": True,
}
PAIR = {"weight": 1.0, "model_name_pairs": [["Student", "Teacher"]], "key": "head_out"}
ONE = {"weight": 1.0, "model_name_list": ["Student"], "key": "head_out", "multi_head": True}
DISTILLATION_LOSS = {
    "name": "CombinedLoss",
    "loss_config_list": [
        {
            "DistillationDKDLoss": {
                **PAIR,
                "multi_head": True,
                "alpha": 1.0,
                "beta": 2.0,
                "dis_head": "gtc",
                "name": "dkd",
            }
        },
        {"DistillationCTCLoss": ONE},
        {"DistillationNRTRLoss": {**ONE, "smoothing": False}},
        {"DistillCTCLogits": {**PAIR, "reduction": "mean"}},
    ],
}

# File of SVTRv2 → algorithm and backbone, or {sub-model: backbone}.
SVTRV2: dict[str, tuple[str, Any]] = {
    "SVTRv2/ch_RepSVTR_rec": ("SVTR_HGNet", "RepSVTR"),
    "SVTRv2/ch_RepSVTR_rec_gtc": ("SVTR_HGNet", "RepSVTR"),
    "SVTRv2/ch_SVTRv2_rec": ("SVTR_HGNet", "SVTRv2"),
    "SVTRv2/ch_SVTRv2_rec_gtc": ("SVTR_HGNet", "SVTRv2"),
    "SVTRv2/ch_SVTRv2_rec_distillation": ("SVTR_LCNet", {"Teacher": "SVTRv2", "Student": "RepSVTR"}),
}
OFFICIAL = (*SVTRV2, *stored_facts())


def official(name: str) -> dict[str, Any]:
    """A config that names what the file ``name`` names, with its keys; it has no dictionary and no data."""
    if name not in SVTRV2:
        return copy.deepcopy(config_of(stored_facts()[name]))
    algorithm, backbones = SVTRV2[name]
    config: dict[str, Any] = {
        "Global": GLOBAL,
        "Architecture": _model(algorithm, backbones),
        "Optimizer": {**ADAMW, "lr": COSINE},
        "Loss": {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": None}, {"NRTRLoss": None}]},
        "PostProcess": {"name": "CTCLabelDecode"},
        "Metric": {"name": "RecMetric", "main_indicator": "acc", "ignore_space": False},
        "Train": {
            "dataset": {
                "name": "MultiScaleDataSet",
                "ds_width": False,
                "data_dir": "./train_data/",
                "ext_op_transform_idx": 1,
                "label_file_list": ["./train_data/train_list.txt"],
                "transforms": [DECODE, {"RecAug": None}, ENCODE, KEEP],
            },
            "sampler": SAMPLER,
            "loader": LOADER,
        },
        "Eval": {
            "dataset": {
                "name": "SimpleDataSet",
                "data_dir": "./train_data",
                "label_file_list": ["./train_data/val_list.txt"],
                "transforms": [DECODE, ENCODE, RESIZE, KEEP],
            },
            "loader": {**LOADER, "shuffle": False, "drop_last": False},
        },
    }
    if isinstance(backbones, dict):
        config |= _distillation(algorithm, backbones)
    return copy.deepcopy(config)


def _model(algorithm: str, backbone: Any) -> dict[str, Any]:
    nrtr = {"nrtr_dim": 384, "max_text_length": 25, "num_decoder_layers": 2}
    head_list = [{"CTCHead": {"Neck": NECK, "Head": {"fc_decay": 0.00001}}}, {"NRTRHead": nrtr}]
    return {
        "model_type": "rec",
        "algorithm": algorithm,
        "Transform": None,
        "Backbone": {"name": backbone, **BACKBONES[backbone]} if isinstance(backbone, str) else None,
        "Head": {"name": "MultiHead", "head_list": head_list},
    }


def _distillation(algorithm: str, backbones: dict[str, str]) -> dict[str, Any]:
    models = {}
    for name, backbone in backbones.items():
        frozen = name == "Teacher"
        flags = {"pretrained": None, "freeze_params": frozen, "return_all_feats": True}
        models[name] = {**flags, **_model(algorithm, backbone)}
    return {
        "Architecture": {
            "model_type": "rec",
            "name": "DistillationModel",
            "algorithm": "Distillation",
            "Models": models,
        },
        "Loss": DISTILLATION_LOSS,
        "PostProcess": {
            "name": "DistillationCTCLabelDecode",
            "model_name": ["Student"],
            "key": "head_out",
            "multi_head": True,
        },
        "Metric": {
            "name": "DistillationMetric",
            "base_metric_name": "RecMetric",
            "main_indicator": "acc",
            "key": "Student",
        },
    }


def with_data(config: dict[str, Any], data: Path) -> dict[str, Any]:
    """``config`` with files that are there."""
    config["Global"]["character_dict_path"] = str(data / "dict.txt")
    for mode, name in (("Train", "train.txt"), ("Eval", "val.txt")):
        config[mode]["dataset"] |= {"data_dir": str(data), "label_file_list": [str(data / name)]}
    return config
