"""Keys and components of ``Loss``, ``Optimizer``, ``PostProcess`` and ``Metric``."""

from __future__ import annotations

import math
from typing import Any

import ppocr_ext.optim  # noqa: F401 - registers optimizers and schedules
from ppocr_ext.check.homes import GIVEN_TO_SCHEDULE
from ppocr_ext.check.look import Look, Path, is_number, shown
from ppocr_ext.check.signatures import keys_of
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


def check_loss(look: Look) -> None:
    """The loss, and the losses that it is made of."""
    options = look.mapping("Loss")
    if not options:
        return
    name = options.get("name")
    if name is None:
        look.error(("Loss",), f"`name` is missing. One of: {', '.join(LOSSES.names())}.", "name")
        return
    component = look.component(LOSSES, name, ("Loss", "name"))
    if component is None:
        return
    look.keys(("Loss",), component, look.options("Loss"), extra=("name",))
    if component not in (CombinedLoss, MultiLoss):
        return
    if not look.at("Loss", "loss_config_list"):
        said = f"loss_config_list must be given: what the {name} is made of."
        look.error(("Loss",), said, "loss_config_list")
    seen: list[str] = []
    for entry, path in look.listed("Loss", "loss_config_list"):
        if entry in CENTER_LOSSES and any(name in CENTER_LOSSES for name in seen):
            look.error(path, "a center loss is listed twice, so that frames would be pulled twice. Keep one.")
        if component is MultiLoss:
            _check_branch_loss(look, entry, path, seen)
        else:
            _check_weighted_loss(look, entry, path)
        seen.append(entry)


def _check_branch_loss(look: Look, name: str, path: Path, seen: list[str]) -> None:
    if name not in BRANCH_OF:
        look.error(path, f"{name} is none of {', '.join(BRANCH_OF)}, which a MultiLoss is made of.")
        return
    if name in seen:
        look.error(path, f"{name} is listed twice.")
    component = look.component(LOSSES, name, path)
    if component is not None:
        look.keys(path, component, look.mapping(*path), extra=("weight",) if name == "CenterLoss" else ())
    if name == "CenterLoss" and "weight" in look.mapping(*path):
        _check_weight(look, path)


def _check_weighted_loss(look: Look, name: str, path: Path) -> None:
    component = look.component(LOSSES, name, path)
    options = look.mapping(*path)
    if component is not None:
        look.keys(path, component, options, extra=("weight",))
    if "weight" not in options:
        look.error(path, "`weight` is missing, such as `weight: 1.0`.")
    else:
        _check_weight(look, path)


def _check_weight(look: Look, path: Path) -> None:
    weight = look.at(*path, "weight")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        look.error((*path, "weight"), f"{weight!r} is no number.")


def check_optimizer(look: Look) -> None:
    """The optimizer, its learning rate and its regularizer."""
    options = look.mapping("Optimizer")
    if not options:
        return
    name = options.get("name")
    component = None
    if name is None:
        look.error(("Optimizer",), f"`name` is missing. One of: {', '.join(OPTIMIZERS.names())}.", "name")
    else:
        component = look.component(OPTIMIZERS, name, ("Optimizer", "name"))
    if component is not None:
        look.keys(
            ("Optimizer",),
            component,
            options,
            injected=_GIVEN_TO_OPTIMIZER,
            extra=_OF_OPTIMIZER,
            others=OPTIMIZERS,
        )
    for key in _GIVEN_TO_OPTIMIZER:
        if key in options:
            look.unknown_key(("Optimizer", key), _OF_OPTIMIZER)
    for one, other in _EXCLUDING:
        if options.get(one) is not None and options.get(other) is not None:
            look.error(("Optimizer", one), f"`{one}` and `{other}` exclude each other. Keep one of them.")
    if options.get("group_lr"):
        look.error(
            ("Optimizer", "group_lr"), "a rate of its own for some parameters is not supported. Take it out."
        )
    for key in ("clip_norm", "clip_norm_global", "weight_decay"):
        _check_number(look, ("Optimizer", key))
    _check_regularizer(look)
    _check_schedule(look)


def _check_number(look: Look, path: Path) -> None:
    """A finite number that is not negative, or nothing."""
    value = look.at(*path)
    if isinstance(value, str) and is_number(value):
        look.kind(path, value, "number")
    elif value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
    ):
        look.error(path, f"{shown(value)} is no number.")
    elif isinstance(value, (int, float)) and value < 0:
        look.error(path, f"{value!r} is negative. Give a number of at least 0.")


def _check_regularizer(look: Look) -> None:
    options = look.mapping("Optimizer", "regularizer")
    if not options:
        return
    look.keys(("Optimizer", "regularizer"), _regularizer_keys, options)
    name = options.get("name")
    if name is not None and str(name).removesuffix("Decay") not in ("L1", "L2"):
        look.error(("Optimizer", "regularizer", "name"), f"{name!r} must be L1 or L2.")


def _regularizer_keys(name: Any, factor: float = 0.0) -> None:
    """Keys of ``Optimizer.regularizer``."""


def _check_schedule(look: Look) -> None:
    path = ("Optimizer", "lr")
    options = look.mapping(*path)
    if not options:
        if look.at(*path) is None:
            said = "`lr` is missing, such as `lr: {name: Cosine, learning_rate: 0.001}`."
            look.error(("Optimizer",), said, "lr")
        return
    component = look.component(SCHEDULES, options.get("name") or "Const", (*path, "name"))
    if component is not None:
        look.keys(
            path,
            component,
            look.options(*path),
            injected=GIVEN_TO_SCHEDULE,
            extra=("name",),
            others=SCHEDULES,
        )
        for key in _RATES:
            _check_number(look, (*path, key))
        values = options.get("values")  # of Piecewise
        for index in range(len(values) if isinstance(values, tuple) else 0):
            _check_number(look, (*path, "values", str(index)))


def check_decoder(look: Look) -> None:
    """``PostProcess``: the host's decoder, which is given all of ``Global`` too."""
    options = look.mapping("PostProcess")
    if not options:
        return
    if options.get("name") is None:
        look.error(("PostProcess",), "`name` is missing, such as CTCLabelDecode.", "name")
        return
    component = look.part("decoder", "decoder", options["name"], ("PostProcess", "name"))
    if component is not None:
        given = [str(key) for key in look.mapping("Global")]
        look.keys(
            ("PostProcess",), component, look.options("PostProcess"), injected=given, extra=("name", *given)
        )


def check_metric(look: Look) -> None:
    """The metric, and the one that a DistillationMetric applies to each sub-model."""
    options = look.mapping("Metric")
    if not options:
        return
    if options.get("name") is None:
        look.error(("Metric",), f"`name` is missing. One of: {', '.join(METRICS.names())}.", "name")
        return
    component = look.component(METRICS, options["name"], ("Metric", "name"))
    extra = {"name", "main_indicator"}
    if component is DistillationMetric:
        base = look.component(
            METRICS, options.get("base_metric_name", "RecMetric"), ("Metric", "base_metric_name")
        )
        if base is None:
            return
        extra |= keys_of(base).named
        if options.get("key") is None:
            said = "`key` is missing: the sub-model that decides, such as `key: Student`."
            look.error(("Metric",), said, "key")
    if component is None:
        return
    look.keys(("Metric",), component, options, injected=("has_space",), extra=extra)
    indicator = options.get("main_indicator", "acc")
    if component in (RecMetric, DistillationMetric) and indicator not in INDICATORS:
        look.error(("Metric", "main_indicator"), f"{indicator!r} is not among {', '.join(INDICATORS)}.")
