"""Keys and components of ``Loss``, ``Optimizer``, ``PostProcess`` and ``Metric``."""

from __future__ import annotations

import math
from typing import Any

import ppocr_ext.optim  # noqa: F401 - registers optimizers and schedules
from ppocr_ext.check.config_check import ConfigCheck, Path, is_number, shown
from ppocr_ext.check.signatures import component_keys
from ppocr_ext.check.unknown_keys import GIVEN_TO_SCHEDULE
from ppocr_ext.config import CENTER_LOSSES
from ppocr_ext.losses import CombinedLoss, MultiLoss
from ppocr_ext.losses.multi import BRANCH_OF
from ppocr_ext.metrics import DistillationMetric, RecMetric
from ppocr_ext.registry import LOSSES, METRICS, OPTIMIZERS, SCHEDULES

INDICATORS = ("acc", "norm_edit_dis")
_OF_OPTIMIZER = ("name", "lr", "regularizer", "weight_decay", "clip_norm", "clip_norm_global", "group_lr")
_GIVEN_TO_OPTIMIZER = ("model", "learning_rate", "grad_clip")
_RATES = ("learning_rate", "start_lr", "end_lr", "min_lr", "max_lr")
_EXCLUDING = (("regularizer", "weight_decay"), ("clip_norm", "clip_norm_global"))


def check_loss(check: ConfigCheck) -> None:
    """The loss, and the losses that it is made of."""
    options = check.mapping("Loss")
    if not options:
        return
    name = options.get("name")
    if name is None:
        check.error(
            ("Loss",), "missing_key", f"`name` is missing. One of: {', '.join(LOSSES.names())}.", "name"
        )
        return
    component = check.component(LOSSES, name, ("Loss", "name"))
    if component is None:
        return
    check.check_keys(("Loss",), component, check.options("Loss"), extra=("name",))
    if component not in (CombinedLoss, MultiLoss):
        return
    if not check.at("Loss", "loss_config_list"):
        said = f"loss_config_list must be given: what the {name} is made of."
        check.error(("Loss",), "missing_key", said, "loss_config_list")
    seen: list[str] = []
    for entry, path in check.items("Loss", "loss_config_list"):
        if entry in CENTER_LOSSES and any(name in CENTER_LOSSES for name in seen):
            check.error(
                path,
                "duplicate_item",
                "a center loss is listed twice, so that frames would be pulled twice. Keep one.",
            )
        if component is MultiLoss:
            _check_branch_loss(check, entry, path, seen)
        else:
            _check_weighted_loss(check, entry, path)
        seen.append(entry)


def _check_branch_loss(check: ConfigCheck, name: str, path: Path, seen: list[str]) -> None:
    if name not in BRANCH_OF:
        check.error(
            path,
            "unsupported_component",
            f"{name} is none of {', '.join(BRANCH_OF)}, which a MultiLoss is made of.",
        )
        return
    if name in seen:
        check.error(path, "duplicate_item", f"{name} is listed twice.")
    component = check.component(LOSSES, name, path)
    if component is not None:
        check.check_keys(
            path, component, check.mapping(*path), extra=("weight",) if name == "CenterLoss" else ()
        )
    if name == "CenterLoss" and "weight" in check.mapping(*path):
        _check_weight(check, path)


def _check_weighted_loss(check: ConfigCheck, name: str, path: Path) -> None:
    component = check.component(LOSSES, name, path)
    options = check.mapping(*path)
    if component is not None:
        check.check_keys(path, component, options, extra=("weight",))
    if "weight" not in options:
        check.error(path, "missing_key", "`weight` is missing, such as `weight: 1.0`.")
    else:
        _check_weight(check, path)


def _check_weight(check: ConfigCheck, path: Path) -> None:
    weight = check.at(*path, "weight")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        check.error((*path, "weight"), "bad_value", f"{weight!r} is no number.")


def check_optimizer(check: ConfigCheck) -> None:
    """The optimizer, its learning rate and its regularizer."""
    options = check.mapping("Optimizer")
    if not options:
        return
    name = options.get("name")
    component = None
    if name is None:
        check.error(
            ("Optimizer",),
            "missing_key",
            f"`name` is missing. One of: {', '.join(OPTIMIZERS.names())}.",
            "name",
        )
    else:
        component = check.component(OPTIMIZERS, name, ("Optimizer", "name"))
    if component is not None:
        check.check_keys(
            ("Optimizer",),
            component,
            options,
            injected=_GIVEN_TO_OPTIMIZER,
            extra=_OF_OPTIMIZER,
            others=OPTIMIZERS,
        )
    for key in _GIVEN_TO_OPTIMIZER:
        if key in options:
            check.unknown_key(("Optimizer", key), _OF_OPTIMIZER)
    for one, other in _EXCLUDING:
        if options.get(one) is not None and options.get(other) is not None:
            check.error(
                ("Optimizer", one),
                "conflicting_keys",
                f"`{one}` and `{other}` exclude each other. Keep one of them.",
            )
    if options.get("group_lr"):
        check.error(
            ("Optimizer", "group_lr"),
            "unsupported_key",
            "a rate of its own for some parameters is not supported. Take it out.",
        )
    for key in ("clip_norm", "clip_norm_global", "weight_decay"):
        _check_number(check, ("Optimizer", key))
    _check_regularizer(check)
    _check_schedule(check)


def _check_number(check: ConfigCheck, path: Path) -> None:
    """A finite number that is not negative, or nothing."""
    value = check.at(*path)
    if isinstance(value, str) and is_number(value):
        check.refuse_quoted(path, value, "number")
    elif value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
    ):
        check.error(path, "bad_value", f"{shown(value)} is no number.")
    elif isinstance(value, (int, float)) and value < 0:
        check.error(path, "bad_value", f"{value!r} is negative. Give a number of at least 0.")


def _check_regularizer(check: ConfigCheck) -> None:
    options = check.mapping("Optimizer", "regularizer")
    if not options:
        return
    check.check_keys(("Optimizer", "regularizer"), _regularizer_keys, options)
    name = options.get("name")
    if name is not None and str(name).removesuffix("Decay") not in ("L1", "L2"):
        check.error(("Optimizer", "regularizer", "name"), "bad_value", f"{name!r} must be L1 or L2.")


def _regularizer_keys(name: Any, factor: float = 0.0) -> None:
    """Keys of ``Optimizer.regularizer``."""


def _check_schedule(check: ConfigCheck) -> None:
    path = ("Optimizer", "lr")
    options = check.mapping(*path)
    if not options:
        if check.at(*path) is None:
            said = "`lr` is missing, such as `lr: {name: Cosine, learning_rate: 0.001}`."
            check.error(("Optimizer",), "missing_key", said, "lr")
        return
    component = check.component(SCHEDULES, options.get("name") or "Const", (*path, "name"))
    if component is not None:
        check.check_keys(
            path,
            component,
            check.options(*path),
            injected=GIVEN_TO_SCHEDULE,
            extra=("name",),
            others=SCHEDULES,
        )
        for key in _RATES:
            _check_number(check, (*path, key))
        values = options.get("values")  # of Piecewise
        for index in range(len(values) if isinstance(values, tuple) else 0):
            _check_number(check, (*path, "values", str(index)))


def check_decoder(check: ConfigCheck) -> None:
    """``PostProcess``: the host's decoder, which is given all of ``Global`` too."""
    options = check.mapping("PostProcess")
    if not options:
        return
    if options.get("name") is None:
        check.error(("PostProcess",), "missing_key", "`name` is missing, such as CTCLabelDecode.", "name")
        return
    component = check.host_component("decoder", "decoder", options["name"], ("PostProcess", "name"))
    if component is not None:
        given = [str(key) for key in check.mapping("Global")]
        check.check_keys(
            ("PostProcess",), component, check.options("PostProcess"), injected=given, extra=("name", *given)
        )


def check_metric(check: ConfigCheck) -> None:
    """The metric, and the one that a DistillationMetric applies to each sub-model."""
    options = check.mapping("Metric")
    if not options:
        return
    if options.get("name") is None:
        check.error(
            ("Metric",), "missing_key", f"`name` is missing. One of: {', '.join(METRICS.names())}.", "name"
        )
        return
    component = check.component(METRICS, options["name"], ("Metric", "name"))
    extra = {"name", "main_indicator"}
    if component is DistillationMetric:
        base = check.component(
            METRICS, options.get("base_metric_name", "RecMetric"), ("Metric", "base_metric_name")
        )
        if base is None:
            return
        extra |= component_keys(base).named
        if options.get("key") is None:
            said = "`key` is missing: the sub-model that decides, such as `key: Student`."
            check.error(("Metric",), "missing_key", said, "key")
    if component is None:
        return
    check.check_keys(("Metric",), component, options, injected=("has_space",), extra=extra)
    indicator = options.get("main_indicator", "acc")
    if component in (RecMetric, DistillationMetric) and indicator not in INDICATORS:
        check.error(
            ("Metric", "main_indicator"), "bad_value", f"{indicator!r} is not among {', '.join(INDICATORS)}."
        )
