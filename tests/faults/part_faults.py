"""Parts that do not fit each other, which the dry step shows; many more are in tests/run/test_dry_step.py."""

from __future__ import annotations

from typing import Any

from planted import Change, Fault, Place, dry_step

TRAIN, EVAL = "Train.dataset.transforms", "Eval.dataset.transforms"
KEYS = "KeepKeys.keep_keys"
KEPT = ["image", "label_ctc", "label_gtc", "length", "valid_ratio"]
LISTED = "Loss.loss_config_list"


def part(name: str, code: str, wrong: Change, right: Change, *names: str, **options: Any) -> Fault:
    return Fault(name, dry_step, code, wrong, right, names, **options)


def kept(*keys: str) -> dict[str, Any]:
    """Keep these keys of a training sample."""
    return {f"{TRAIN}.{KEYS}": ["image", *keys]}


def normalised(scale: float, mean: float) -> Change:
    """Normalise the pixels before RecResizeImg does, in Train and Eval."""
    options = {"scale": scale, "mean": [mean] * 3, "std": [mean or 1.0] * 3, "order": "hwc"}

    def change(place: Place) -> dict[str, Any]:
        listed = place.config("student").thaw()["Train"]["dataset"]["transforms"]
        return dict.fromkeys((TRAIN, EVAL), [listed[0], {"NormalizeImage": options}, *listed[1:]])

    return change


def centers(**options: Any) -> dict[str, Any]:
    """Add a center loss whose centers form in training."""
    return {LISTED: [{"CTCLoss": None}, {"NRTRLoss": None}, {"CenterLoss": {"update": "ema", **options}}]}


FAULTS = (
    part("no file of centers", "missing_file", centers(center_file_path="no/centers.npz"), centers(),
         "CenterLoss", "no/centers.npz"),
    part("no groups of look-alikes", "unreadable_file", centers(margin=0.1, look_alikes="no/groups.txt"),
         centers(margin=0.1, look_alikes=3), "CenterLoss", "no/groups.txt"),
    part("labels in another order", "label_mismatch", kept("label_gtc", "label_ctc", *KEPT[3:]), kept(*KEPT[1:]),
         f"{TRAIN}.{KEYS}"),
    part("a key that no transform makes", "unknown_sample_key", kept(*KEPT[1:], "label_ace"), kept(*KEPT[1:]),
         "label_ace"),
    part("a pattern that no parameter has", "no_match", {"Global.freeze": ["backbon.*"]},
         {"Global.freeze": ["backbone.*"]}, "Global.freeze", "backbone.*"),
    part("a rate for parts that are not there", "no_match", {"Optimizer.lr_mult": {"hed.*": 0.1}},
         {"Optimizer.lr_mult": {"head.*": 0.1}}, "hed.*"),
    part("a loss of a sub-model that is not there", "unknown_sub_model",
         {f"{LISTED}.DistillationCTCLoss.model_name_list": ["Studnet"]},
         {f"{LISTED}.DistillationCTCLoss.model_name_list": ["Student"]}, "Student", kind="distill"),
    part("a pair of one sub-model with itself", "bad_value",
         {f"{LISTED}.CTCFrameKDLoss.model_name_pairs": [["Student", "Student"]]},
         {f"{LISTED}.CTCFrameKDLoss.model_name_pairs": [["Student", "Teacher"]]}, "two different", kind="distill"),
    part("a temperature of 0", "bad_value", {f"{LISTED}.CTCFrameKDLoss.temperature": 0},
         {f"{LISTED}.CTCFrameKDLoss.temperature": 1.0}, "greater than 0", kind="distill"),
    part("a metric of a sub-model that is not there", "missing_output", {"Metric.key": "Studnet"},
         {"Metric.key": "Student"}, "Metric.key", "Student", kind="distill"),
    part("images that are normalised twice", "uniform_images", normalised(1 / 255, 0.5), normalised(1.0, 0.0),
         TRAIN, EVAL, level="warning"),
    part("valid_ratio that is not kept", "no_valid_ratio", kept(*KEPT[1:4]), kept(*KEPT[1:]), "valid_ratio",
         kind="distill", level="warning"),
)  # fmt: skip
