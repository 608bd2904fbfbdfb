"""Check keys and components of ``Loss``, ``Optimizer``, ``PostProcess`` and ``Metric``."""

from __future__ import annotations

from typing import Any

from ppocr_ext.check.config_check import ConfigCheck, Path
from ppocr_ext.check.signatures import component_keys
from ppocr_ext.check.unknown_keys import GIVEN_TO_SCHEDULE
from ppocr_ext.config import CENTER_LOSSES
from ppocr_ext.config.values import ValueRule
from ppocr_ext.losses import CombinedLoss, MultiLoss
from ppocr_ext.losses.combined_losses import BRANCH_OF
from ppocr_ext.metrics import DistillationMetric, RecMetric
from ppocr_ext.optim import option_errors
from ppocr_ext.registry import LOSSES, METRICS, OPTIMIZERS, SCHEDULES

INDICATORS = ("acc", "norm_edit_dis")
_OF_OPTIMIZER = ("name", "lr", "regularizer", "weight_decay", "clip_norm", "clip_norm_global", "group_lr")
_GIVEN_TO_OPTIMIZER = ("model", "learning_rate", "grad_clip")
_RATES = ("learning_rate", "start_lr", "end_lr", "min_lr", "max_lr")
_NOT_NEGATIVE = ValueRule("number", least=0)


def check_loss(check: ConfigCheck) -> None:
    """Check the loss, and the losses that it is made of."""
    options = check.mapping("Loss")
    if not options:
        return
    component = check.component(LOSSES, options.get("name"), ("Loss", "name"))
    if component is None:
        return
    check.check_keys(("Loss",), component, check.options("Loss"), injected=("context",), extra=("name",))
    if component not in (CombinedLoss, MultiLoss):
        return
    if not check.at("Loss", "loss_config_list"):
        check.missing(("Loss", "loss_config_list"), f"the losses of the {options['name']}")
    seen: list[str] = []
    for name, path in check.items("Loss", "loss_config_list"):
        if name in CENTER_LOSSES and any(other in CENTER_LOSSES for other in seen):
            message = "a second center loss would pull frames twice. Fix: keep one."
            check.error(path, "duplicate_item", message)
        elif component is MultiLoss and name in seen:
            check.error(path, "duplicate_item", f"{name} is listed twice. Fix: keep one.")
        _check_listed_loss(check, name, path, of_branches=component is MultiLoss)
        seen.append(name)


def _check_listed_loss(check: ConfigCheck, name: str, path: Path, of_branches: bool) -> None:
    """Check one loss of a MultiLoss (``of_branches``), or of a CombinedLoss, where each needs a weight."""
    if of_branches and name not in BRANCH_OF:
        message = f"found {name}, expected a loss of a branch: {', '.join(BRANCH_OF)}."
        check.error(path, "unsupported_component", message)
        return
    weighted = not of_branches or name == "CenterLoss"
    component = check.component(LOSSES, name, path)
    if component is not None:
        extra = ("weight",) if weighted else ()
        check.check_keys(path, component, check.mapping(*path), injected=("context",), extra=extra)
    if not weighted or (of_branches and "weight" not in check.mapping(*path)):
        return
    if check.at(*path, "weight") is None:
        check.missing((*path, "weight"), "such as `weight: 1.0`")
    check.check_value((*path, "weight"), ValueRule("number"))


def check_optimizer(check: ConfigCheck) -> None:
    """Check the optimizer, its learning rate and its regularizer."""
    options = check.mapping("Optimizer")
    if not options:
        return
    component = check.component(OPTIMIZERS, options.get("name"), ("Optimizer", "name"))
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
    for key in ("clip_norm", "clip_norm_global", "weight_decay"):
        check.check_value(("Optimizer", key), _NOT_NEGATIVE)
    regularizer = check.mapping("Optimizer", "regularizer")
    if regularizer:
        check.check_keys(("Optimizer", "regularizer"), _regularizer_keys, regularizer)
    for path, code, message in option_errors(options):
        check.error(("Optimizer", *path), code, message)
    _check_schedule(check)


def _regularizer_keys(name: Any = None, factor: float = 0.0) -> None:
    """Keys of ``Optimizer.regularizer``."""


def _check_schedule(check: ConfigCheck) -> None:
    path = ("Optimizer", "lr")
    options = check.mapping(*path)
    if not options:
        if check.at(*path) is None:
            check.missing(path, "such as `lr: {name: Cosine, learning_rate: 0.001}`")
        return
    component = check.component(SCHEDULES, options.get("name") or "Const", (*path, "name"))
    if component is None:
        return
    check.check_keys(
        path, component, check.options(*path), injected=GIVEN_TO_SCHEDULE, extra=("name",), others=SCHEDULES
    )
    values = options.get("values")  # of Piecewise
    indices = [("values", str(index)) for index in range(len(values) if isinstance(values, tuple) else 0)]
    for key in [*((rate,) for rate in _RATES), *indices]:
        check.check_value((*path, *key), _NOT_NEGATIVE)


def check_decoder(check: ConfigCheck) -> None:
    """Check ``PostProcess``: the host's decoder, which gets all of ``Global`` too."""
    options = check.mapping("PostProcess")
    if not options:
        return
    if options.get("name") is None:
        check.missing(("PostProcess", "name"), "such as CTCLabelDecode")
        return
    component = check.host_component("decoder", "decoder", options["name"], ("PostProcess", "name"))
    if component is not None:
        given = [str(key) for key in check.mapping("Global")]
        own = check.options("PostProcess")
        check.check_keys(("PostProcess",), component, own, injected=given, extra=("name", *given))


def check_metric(check: ConfigCheck) -> None:
    """Check the metric, and the one that a DistillationMetric applies to each sub-model."""
    options = check.mapping("Metric")
    if not options:
        return
    component = check.component(METRICS, options.get("name"), ("Metric", "name"))
    extra = {"name", "main_indicator"}
    if component is DistillationMetric:
        name = options.get("base_metric_name", "RecMetric")
        base = check.component(METRICS, name, ("Metric", "base_metric_name"))
        if base is None:
            return
        extra |= component_keys(base).named
        if options.get("key") is None:
            check.missing(("Metric", "key"), "the sub-model that decides, such as `key: Student`")
    if component is None:
        return
    check.check_keys(("Metric",), component, options, injected=("has_space",), extra=extra)
    if component in (RecMetric, DistillationMetric):
        check.check_value(("Metric", "main_indicator"), ValueRule("text", choices=INDICATORS))
