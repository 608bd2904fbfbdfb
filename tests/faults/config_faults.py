"""Faults that the config alone shows. The tiny config of tests/tiny_runs.py has batches of 8 and two epochs."""

from __future__ import annotations

import math
from typing import Any

from planted import Change, Fault, Place, config_check, resuming

LR = "Optimizer.lr.learning_rate"
LISTED = "Loss.loss_config_list"
CTC, FRAMES = f"{LISTED}.DistillationCTCLoss", f"{LISTED}.CTCFrameKDLoss"
HEAD = "Architecture.Head"
TRAIN, EVAL = "Train.dataset", "Eval.dataset"
RESIZE = "transforms.RecResizeImg"
PAIRS, TAUGHT = f"{FRAMES}.model_name_pairs", f"{CTC}.model_name_list"
TEACHER, ALLOW = "Architecture.Models.Teacher", "Global.allow_untrained_teacher"
FROZEN = f"{TEACHER}.freeze_params"


def error(name: str, code: str, wrong: Change, right: Change, *names: str, **options: Any) -> Fault:
    """A fault of the config; the first key that is changed is named without being listed."""
    first = () if callable(wrong) else (next(iter(wrong)),)
    return Fault(name, config_check, code, wrong, right, (*first, *names), **options)


def warning(name: str, code: str, wrong: Change, right: Change, *names: str, **options: Any) -> Fault:
    return error(name, code, wrong, right, *names, level="warning", **options)


def dictionary(*lines: str, space: bool = False) -> Change:
    """A dictionary of these lines besides the digits."""

    def change(place: Place) -> dict[str, Any]:
        file = place.folder / "dict.txt"
        file.write_text("\n".join([*"0123456789", *lines]) + "\n", encoding="utf-8")
        return {"Global.character_dict_path": str(file), "Global.use_space_char": space}

    return change


def scales(first_bs: int) -> Change:
    """Train on images of several scales, in batches of this size."""

    def change(place: Place) -> dict[str, Any]:
        listed = place.config("student").thaw()["Train"]["dataset"]["transforms"]
        return {
            "Train.sampler": {
                "name": "MultiScaleSampler",
                "scales": [[128, 32]],
                "first_bs": first_bs,
                "fix_bs": False,
            },
            f"{TRAIN}.name": "MultiScaleDataSet",
            f"{TRAIN}.transforms": [each for each in listed if "RecResizeImg" not in each],
            "Global.allow_different_preprocessing": True,
        }

    return change


def dkd(beta: float) -> dict[str, Any]:
    """A distillation by DKD."""
    pair = {
        "model_name_pairs": [["Student", "Teacher"]],
        "key": "head_out",
        "multi_head": True,
        "dis_head": "gtc",
    }
    return {f"{LISTED}": [{"DistillationDKDLoss": {"weight": 1.0, **pair, "beta": beta}}]}


RATES = (
    warning("a learning rate of 10", "high_learning_rate", {LR: 10}, {LR: 0.005}, "AdamW", "lower rate"),
    warning("a learning rate of 1e6", "high_learning_rate", {LR: 1e6}, {LR: 0.005}, "NaN"),
    warning("a learning rate of 0", "zero_learning_rate", {LR: 0}, {LR: 0.001}),
    error("a negative learning rate", "bad_value", {LR: -0.001}, {LR: 0.001}),
    error("a learning rate that is NaN", "bad_value", {LR: math.nan}, {LR: 0.001}),
    error("a learning rate in quotes", "quoted_value", {LR: "0.001"}, {LR: 0.001}, "quotes"),
    warning(
        "a rate for a larger batch without a clip", "no_gradient_clip",
        {LR: 0.002, "Optimizer.clip_norm_global": None}, {LR: 0.0001, "Optimizer.clip_norm_global": None},
        "clip_norm_global",
    ),
    warning("a warm-up of 50 epochs in a run of 2", "long_warm_up", {"Optimizer.lr.warmup_epoch": 50},
            {"Optimizer.lr.warmup_epoch": 1}, "2 epochs"),
    warning("a weight decay of 1000", "high_weight_decay", {"Optimizer.weight_decay": 1000},
            {"Optimizer.weight_decay": 0.5}, "0.05"),
    error("a weight decay that is NaN", "bad_value", {"Optimizer.weight_decay": math.nan},
          {"Optimizer.weight_decay": 0.0}),
    error("a beta1 that is NaN", "bad_value", {"Optimizer.beta1": math.nan}, {"Optimizer.beta1": 0.8}),
    error("a beta2 above 1", "bad_value", {"Optimizer.beta2": 9.99}, {"Optimizer.beta2": 0.999}),
    warning(
        "a momentum above 1", "high_momentum",
        {"Optimizer": {"name": "Momentum", "momentum": 9.0, "lr": {"learning_rate": 0.01}}},
        {"Optimizer": {"name": "Momentum", "momentum": 0.9, "lr": {"learning_rate": 0.01}}},
    ),
    error("two clips", "conflicting_keys", {"Optimizer.clip_norm": 1.0},
          {"Optimizer.clip_norm": 1.0, "Optimizer.clip_norm_global": None}, "clip_norm_global"),
)  # fmt: skip

OBJECTIVE = (
    warning("a loss weight of 0", "loss_weight", {"Loss.weight_2": 0}, {"Loss.weight_2": 0.1}, "remove"),
    warning("a negative loss weight", "loss_weight", {"Loss.weight_1": -1.0}, {"Loss.weight_1": 2.0}, "above 0"),
    error("a loss weight that is NaN", "bad_value", {"Loss.weight_1": math.nan}, {"Loss.weight_1": 0.5}),
    warning("a loss weight of 0 in a distillation", "loss_weight", {f"{CTC}.weight": 0}, {f"{CTC}.weight": 0.1},
            kind="distill"),
    error("an infinite loss weight", "bad_value", {f"{CTC}.weight": math.inf}, {f"{CTC}.weight": 10.0},
          kind="distill"),
    error("a temperature that is NaN", "bad_value", {f"{FRAMES}.temperature": math.nan},
          {f"{FRAMES}.temperature": 4.0}, kind="distill"),
    error("a beta of DKD that is NaN", "bad_value", dkd(math.nan), dkd(8.0), "DKDLoss.beta", kind="distill"),
    error("a pair that is swapped", "swapped_pair", {PAIRS: [["Teacher", "Student"]]},
          {PAIRS: ["Student", "Teacher"]}, "[[Student, Teacher]]", kind="distill"),
    error("labels for the frozen teacher alone", "frozen_is_taught", {TAUGHT: ["Teacher"]}, {TAUGHT: ["Student"]},
          "Teacher is frozen", kind="distill"),
    warning("labels for the frozen teacher too", "frozen_is_taught", {TAUGHT: ["Student", "Teacher"]},
            {TAUGHT: ["Student", "Teacher"], FROZEN: False}, "trained sub-models", kind="distill"),
    Fault("a teacher that is not frozen", config_check, "untrained_sub_model", {FROZEN: False}, {FROZEN: True},
          (TEACHER, "freeze_params: true"), kind="distill"),
    warning("a frozen teacher without weights", "missing_weights", {f"{TEACHER}.pretrained": None, ALLOW: False},
            {f"{TEACHER}.pretrained": None, ALLOW: True}, f"-o {TEACHER}.pretrained=", ALLOW, kind="distill"),
    warning("a metric of the frozen teacher", "frozen_is_evaluated", {"Metric.key": "Teacher"},
            {"Metric.key": "Student"}, "trained sub-model", kind="distill"),
    warning("a decoder of the frozen teacher", "frozen_is_evaluated", {"PostProcess.model_name": ["Teacher"]},
            {"PostProcess.model_name": ["Teacher", "Student"]}, "trained sub-model", kind="distill"),
    error("a loss that is listed twice", "duplicate_item",
          {f"{LISTED}": [{"CTCLoss": None}, {"CTCLoss": None}]}, {LISTED: [{"CTCLoss": None}, {"NRTRLoss": None}]},
          "keep one"),
    error("an indicator that no metric has", "bad_value", {"Metric.main_indicator": "accuracy"},
          {"Metric.main_indicator": "norm_edit_dis"}, "acc, norm_edit_dis"),
    error("a decoder of another head", "decoder_mismatch", {"PostProcess.name": "NRTRLabelDecode"},
          {"PostProcess.name": "CTCLabelDecode"}, "use CTCLabelDecode"),
    error("an algorithm that gets no labels", "algorithm_mismatch", {"Architecture.algorithm": "CRNN"},
          {"Architecture.algorithm": "SVTR"}, "SVTR_LCNet"),
    error("an NRTR branch for shorter labels", "text_length_mismatch",
          {f"{HEAD}.head_list.NRTRHead.max_text_length": 3}, {f"{HEAD}.head_list.NRTRHead.max_text_length": 25},
          "remove it"),
    error("class counts of another dictionary", "class_count", {f"{HEAD}.out_channels_list": {"CTCLabelDecode": 99}},
          {f"{HEAD}.out_channels_list": {"CTCLabelDecode": 11}}, "!remove"),
)  # fmt: skip

GLOBAL = (
    error("a misspelt key", "unknown_key", {"Global.max_text_lenght": 8}, {"Global.max_text_length": 8},
          "'max_text_length'"),
    error("a learning rate in Global", "unknown_key", {"Global.learning_rate": 0.001}, {LR: 0.001}, LR),
    error("epochs of other programs", "unknown_key", {"Global.epochs": 3}, {"Global.epoch_num": 3}, "Global.epoch_num"),
    error("a batch size of other programs", "unknown_key", {"Train.batch_size": 6},
          {"Train.loader.batch_size_per_card": 6}, "Train.loader.batch_size_per_card"),
    error("a dictionary of other programs", "unknown_key", {"Global.dict_path": "dict.txt"}, {},
          "Global.character_dict_path"),
    error("a misspelt option of a transform", "unknown_key", {f"{TRAIN}.{RESIZE}.pading": False},
          {f"{TRAIN}.{RESIZE}.padding": False}, "'padding'"),
    error("no epoch", "bad_value", {"Global.epoch_num": 0}, {"Global.epoch_num": 1}),
    error("a seed of 1e20", "bad_value", {"Global.seed": 1e20}, {"Global.seed": 2**32 - 1}, "4294967295"),
    error("an evaluation every 0 steps", "bad_value", {"Global.eval_batch_step": [0, 0]},
          {"Global.eval_batch_step": [0, 1]}, "at least 1"),
    error("a share above 1", "bad_value", {"Global.max_unusable": 10}, {"Global.max_unusable": 0.1}, "0 and 1"),
    error("an unknown action at a bad value", "bad_value", {"Global.nonfinite": "rollback"},
          {"Global.nonfinite": "skip"}, "stop, skip"),
    error("no patience", "bad_value", {"Global.early_stop": {"patience": 0}}, {"Global.early_stop": {"patience": 1}}),
    error("unknown characters mapped to nothing", "missing_key",
          {"Global.unknown_symbol": None, "Global.unknown_char": "map"},
          {"Global.unknown_symbol": "9", "Global.unknown_char": "map"}, "such as `unknown_symbol: □`"),
    error("a symbol outside the dictionary", "bad_value",
          {"Global.unknown_symbol": "□", "Global.unknown_char": "map"},
          {"Global.unknown_symbol": "0", "Global.unknown_char": "map"}, "add a line"),
    error("nothing in the folder of weights", "missing_file", {"Global.pretrained_model": "no/such/weights"},
          {"Global.pretrained_model": None}, "no/such/weights"),
    error("no dictionary", "missing_file", {"Global.character_dict_path": "no/dict.txt"}, dictionary(), "no/dict.txt"),
    warning("a space that has two classes", "space_twice", dictionary(" ", space=True), dictionary(" "),
            "Global.use_space_char", "false"),
    error("a character that has two classes", "bad_dictionary", dictionary("a", "b", "a"), dictionary("a", "b"),
          "line 13"),
)  # fmt: skip

DATA = (
    error("batches of no sample", "bad_value", {"Train.loader.batch_size_per_card": 0},
          {"Train.loader.batch_size_per_card": 6}),
    error("a batch size in quotes", "quoted_value", {"Train.loader.batch_size_per_card": "8"},
          {"Train.loader.batch_size_per_card": 8}, "quotes"),
    warning("batches of several scales with no sample", "small_batch", scales(0), scales(16), "first_bs", "such as 64"),
    error("a negative share of a label file", "bad_value", {f"{TRAIN}.ratio_list": [-0.5]},
          {f"{TRAIN}.ratio_list": [0.5]}, "between 0 and 1"),
    error("more samples than a label file has", "bad_value", {f"{TRAIN}.ratio_list": 2.0},
          {f"{TRAIN}.ratio_list": 1.0}, "between 0 and 1"),
    warning("an evaluation of half the samples", "partial_evaluation", {f"{EVAL}.ratio_list": [0.5]},
            {f"{EVAL}.ratio_list": [1.0]}, "remove"),
    warning("an evaluation without its last samples", "ignored_value", {"Eval.loader.drop_last": True},
            {"Eval.loader.drop_last": False}),
    Fault("a folder that is no cache", resuming, "no_teacher_cache", {"Train.teacher_cache": "."},
          {"Train.teacher_cache": None}, ("cache.json",)),
    error("a cache that is not there", "missing_folder", {"Train.teacher_cache": "no/cache"},
          {"Train.teacher_cache": None}, "no/cache", kind="distill"),
    error("no folder of images", "missing_folder", {f"{TRAIN}.data_dir": "no/folder"}, {}, "no/folder"),
    error("no label file", "missing_file", {f"{TRAIN}.label_file_list": ["no/list.txt"]}, {}, "no/list.txt"),
    error("Eval of another height", "preprocessing_mismatch", {f"{EVAL}.{RESIZE}.image_shape": [3, 48, 128]},
          {f"{EVAL}.{RESIZE}.image_shape": [3, 32, 128]}, "48×128 in Eval", "32×128 in Train"),
    error("Eval that pads", "preprocessing_mismatch", {f"{EVAL}.{RESIZE}.padding": True},
          {f"{EVAL}.{RESIZE}.padding": False}, "padding"),
    error("Train of another order of channels", "preprocessing_mismatch",
          {f"{EVAL}.transforms.DecodeImage.img_mode": "RGB"},
          {f"{mode}.transforms.DecodeImage.img_mode": "RGB" for mode in (TRAIN, EVAL)}, "BGR in Train"),
    error("grey images", "bad_value", {f"{EVAL}.transforms.DecodeImage.img_mode": "GRAY"},
          {f"{EVAL}.transforms.DecodeImage.img_mode": "BGR"}, "BGR, RGB"),
    error("a size without channels", "bad_value", {f"{TRAIN}.{RESIZE}.image_shape": [32, 128]},
          {f"{TRAIN}.{RESIZE}.image_shape": [3, 32, 128]}, "[3, 48, 320]"),
)  # fmt: skip

FAULTS = (*RATES, *OBJECTIVE, *GLOBAL, *DATA)
