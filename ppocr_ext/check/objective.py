"""Check keys and components of ``Loss``, ``Optimizer``, ``PostProcess`` and ``Metric``."""

from __future__ import annotations

from typing import Any

from ppocr_ext.base.parts import CENTER_LOSSES, MULTI_LOSSES
from ppocr_ext.check.config_check import GIVEN_TO_SCHEDULE, ConfigCheck, Path
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.losses import CombinedLoss, MultiLoss
from ppocr_ext.metrics import DistillationMetric, RecMetric
from ppocr_ext.optim import option_errors
from ppocr_ext.registry import LOSSES, METRICS, OPTIMIZERS, SCHEDULES, component_keys

_OF_OPTIMIZER = (
    "name",
    "lr",
    "regularizer",
    "weight_decay",
    "clip_norm",
    "clip_norm_global",
    "group_lr",
    "lr_mult",
)
_GIVEN_TO_OPTIMIZER = ("model", "learning_rate", "grad_clip")
_INDICATOR = ValueRule("text", choices=("acc", "norm_edit_dis"))


def check_loss(check: ConfigCheck) -> None:
    """Check the loss, and the losses that it is made of."""
    component = check.named_component(LOSSES, ("Loss",))
    if component not in (CombinedLoss, MultiLoss):
        return
    listed = ("Loss", "loss_config_list")
    if not check.at(*listed):
        check.missing(listed, "the losses that it is made of")
    of_branches = component is MultiLoss
    seen: set[str] = set()
    for name, path in check.items(*listed):
        # a second center loss of another name would pull the same frames
        same = set(CENTER_LOSSES) if name in CENTER_LOSSES else {name} if of_branches else set()
        if same & seen:
            check.error(path, "duplicate_item", f"{name} is listed twice. Fix: keep one.")
        _check_listed_loss(check, name, path, of_branches)
        seen.add(name)


def _check_listed_loss(check: ConfigCheck, name: str, path: Path, of_branches: bool) -> None:
    """Check one loss of a MultiLoss (``of_branches``), or of a CombinedLoss, where each needs a weight."""
    if of_branches and name not in MULTI_LOSSES:
        check.error(
            path,
            "unsupported_component",
            f"found {name}, expected a loss of a branch: {', '.join(MULTI_LOSSES)}.",
        )
        return
    weighted = not of_branches or name in CENTER_LOSSES
    component, options = check.component(LOSSES, name, path), check.mapping(*path)
    if component is not None:
        check.check_keys(path, component, options, extra=("weight",) if weighted else ())
    if weighted and (not of_branches or "weight" in options):
        if options.get("weight") is None:
            check.missing((*path, "weight"), "such as `weight: 1.0`")
        check.check_value((*path, "weight"), ValueRule("number"))


def check_optimizer(check: ConfigCheck) -> None:
    """Check the optimizer, its learning rate and its regularizer."""
    options = check.mapping("Optimizer")
    if not options:
        return
    given = _GIVEN_TO_OPTIMIZER
    check.named_component(OPTIMIZERS, ("Optimizer",), injected=given, extra=_OF_OPTIMIZER, others=OPTIMIZERS)
    for key in given:
        if key in options:
            check.unknown_key(("Optimizer", key), _OF_OPTIMIZER)
    regularizer = ("Optimizer", "regularizer")
    if check.mapping(*regularizer):
        check.check_keys(regularizer, _regularizer_keys, check.mapping(*regularizer))
    for path, code, message in option_errors(options):
        check.error(("Optimizer", *path), code, message)
    rate = ("Optimizer", "lr")
    if check.at(*rate) is None:
        check.missing(rate, "such as `lr: {name: Cosine, learning_rate: 0.001}`")
    check.named_component(SCHEDULES, rate, default="Const", injected=GIVEN_TO_SCHEDULE, others=SCHEDULES)


def _regularizer_keys(name: Any = None, factor: float = 0.0) -> None:
    """Take the keys of ``Optimizer.regularizer``."""


def check_decoder(check: ConfigCheck) -> None:
    """Check ``PostProcess``: the host's decoder, which gets all of ``Global`` too."""
    options = check.mapping("PostProcess")
    component = (
        check.host_component("decoder", options.get("name"), ("PostProcess", "name")) if options else None
    )
    if component is not None:
        given = [str(key) for key in check.mapping("Global")]
        check.check_keys(("PostProcess",), component, options, injected=given, extra=("name", *given))


def check_metric(check: ConfigCheck) -> None:
    """Check the metric, and the one that a DistillationMetric applies to each sub-model."""
    options = check.mapping("Metric") if check.modes else {}
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
    if component is not None:
        check.check_keys(("Metric",), component, options, injected=("has_space",), extra=extra)
    if component in (RecMetric, DistillationMetric):
        check.check_value(("Metric", "main_indicator"), _INDICATOR)
