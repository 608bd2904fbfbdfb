"""Check the loss, optimizer, decoder and metric, and warn of values with which trainings rarely succeed."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from ppocr_ext.base.parts import CENTER_LOSSES, SCALE_SAMPLER
from ppocr_ext.check.config_check import GIVEN_TO_SCHEDULE, ConfigCheck
from ppocr_ext.check.findings import KeyPath
from ppocr_ext.check.sub_models import is_frozen, listed
from ppocr_ext.config import named_items
from ppocr_ext.config.global_keys import ValueRule
from ppocr_ext.data.batches import samples_per_step
from ppocr_ext.losses import CombinedLoss, MultiLoss
from ppocr_ext.metrics import DistillationMetric, RecMetric
from ppocr_ext.optim import option_errors
from ppocr_ext.registry import LOSSES, METRICS, OPTIMIZERS, SCHEDULES, ComponentKeys, component_keys

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
_REGULARIZER = ComponentKeys(frozenset({"name", "factor"}), kinds={"factor": "number"})
_INDICATOR = ValueRule("text", choices=("acc", "norm_edit_dis"))


def check_loss(check: ConfigCheck) -> None:
    """Check the loss, and the losses in its list; their constructors check their weights, in the dry step."""
    component = check.named_component(LOSSES, ("Loss",))
    if component not in (CombinedLoss, MultiLoss):
        return
    listed = ("Loss", "loss_config_list")
    if not check.at(*listed):
        check.missing(listed, "the losses that it is made of")
    of_branches = component is MultiLoss
    seen: set[str] = set()
    for name, path in check.items(*listed):
        # two center losses of different names would pull the same frames twice
        same = CENTER_LOSSES if name in CENTER_LOSSES else (name,) if of_branches else ()
        if not seen.isdisjoint(same):
            check.error(path, "duplicate_item", f"{name} is listed twice. Fix: keep one.")
        weighted = not of_branches or name in CENTER_LOSSES
        if (loss := check.component(LOSSES, name, path)) is not None:
            check.check_keys(path, loss, check.mapping(*path), extra=("weight",) if weighted else ())
        moves = check.at(*path, "update") == "ema"
        if name in CENTER_LOSSES and not (moves or check.at(*path, "center_file_path")):
            check.warning(
                path,
                "missing_centers",
                "no center_file_path, so features are pulled to random centers, as in PaddleOCR. Fix: give a file of "
                "`ppocr-ext export-center`, or set `update: ema`.",
            )
        seen.add(name)


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
        check.check_keys(regularizer, _REGULARIZER, check.mapping(*regularizer))
    for path, code, message in option_errors(options):
        check.error(("Optimizer", *path), code, message)
    rate = ("Optimizer", "lr")
    if check.at(*rate) is None:
        check.missing(rate, "such as `lr: {name: Cosine, learning_rate: 0.001}`")
    check.named_component(SCHEDULES, rate, default="Const", injected=GIVEN_TO_SCHEDULE, others=SCHEDULES)


def check_decoder(check: ConfigCheck) -> None:
    """Check ``PostProcess``; the host gives its decoder all keys of ``Global`` too."""
    options = check.mapping("PostProcess")
    if not options:
        return
    component = check.host_component("decoder", options.get("name"), ("PostProcess", "name"))
    if component is not None:
        of_global = [str(key) for key in check.mapping("Global")]
        check.check_keys(("PostProcess",), component, options, of_global, ("name", *of_global))


def check_metric(check: ConfigCheck) -> None:
    """Check the metric, and the one that a DistillationMetric applies to each sub-model."""
    options = check.mapping("Metric") if check.modes else {}
    if not options:
        return
    component = check.component(METRICS, options.get("name"), ("Metric", "name"))
    extra = {"name", "main_indicator"}
    if component is DistillationMetric:
        base_name = options.get("base_metric_name", "RecMetric")
        if (base := check.component(METRICS, base_name, ("Metric", "base_metric_name"))) is None:
            return
        extra |= component_keys(base).named
        if options.get("key") is None:
            check.missing(("Metric", "key"), "the sub-model that decides, such as `key: Student`")
    if component is not None:
        check.check_keys(("Metric",), component, options, injected=("has_space",), extra=extra)
    if component in (RecMetric, DistillationMetric):
        check.check_value(("Metric", "main_indicator"), _INDICATOR)


_RATES = ("learning_rate", "max_lr")
LONG_WARM_UP = 0.5  # share of the run, which leaves half of a cosine
_LARGEST = sys.float_info.max
_DECAY = "{:g} pulls all weights to 0 faster than they learn. Fix: 0.05 (AdamW), 3e-5 (L2 of Adam)."
_FADES = "found {:g}: earlier gradients never fade, so the weights grow forever. Fix: 0.9."
# key of Optimizer, the greatest value that gives no warning, code, and message
_MOST = (
    (("weight_decay",), 1.0, "high_weight_decay", _DECAY),
    (("regularizer", "factor"), 0.1, "high_weight_decay", _DECAY),  # PaddleOCR's configs have 1e-5 to 1e-4
    (("momentum",), math.nextafter(1, 0), "high_momentum", _FADES),
    (("rho",), math.nextafter(1, 0), "high_momentum", _FADES),
)


class RateLimits(NamedTuple):
    """The greatest learning rate without a warning, and the greatest rate per sample of a step.

    PaddleOCR's recognition configs and the shipped ones stay below all of these limits (tests in tests/check).
    """

    rate: float
    per_sample: float

    def allow(self, rate: float, samples: int) -> bool:
        """Return True if a rate gives no warning with so many samples per step."""
        # True for NaN, which another check reports
        return not (rate > self.rate or rate / samples > self.per_sample)


_ADAPTIVE = (RateLimits(0.01, 1e-3), RateLimits(0.001, 2e-5))  # with and without a gradient clip
_LIMITS = {
    "Adam": _ADAPTIVE,
    "AdamW": _ADAPTIVE,
    "RMSProp": _ADAPTIVE,
    "Momentum": (RateLimits(1.0, 0.02), RateLimits(0.1, 0.005)),
    "Adadelta": (RateLimits(10.0, math.inf), RateLimits(10.0, math.inf)),
}


def check_training(check: ConfigCheck) -> None:
    """Add the warnings of a training; the config has been checked for errors before."""
    _check_rate(check)
    for key, most, code, message in _MOST:
        value = _number(check.at("Optimizer", *key))
        if value is not None and value > most:
            check.warning(("Optimizer", *key), code, message.format(value))
    _check_warm_up(check)
    _check_batch(check)
    _check_loss_weights(check)
    _check_evaluated(check)


def _check_rate(check: ConfigCheck) -> None:
    """Compare the learning rate with the limits of the optimizer."""
    rate, path = _highest_rate(check)
    samples = samples_per_step(check.config, check.processes)
    constant: KeyPath = ("Optimizer", "lr", "learning_rate")
    if not rate and _number(check.at(*constant)) == 0:
        check.warning(
            constant,
            "zero_learning_rate",
            "found 0, so nothing is trained. Fix: a rate above 0, such as 0.001 (AdamW).",
        )
    name = str(check.at("Optimizer", "name"))
    if not rate or samples is None or name not in _LIMITS:
        return
    clipped, free = _LIMITS[name]
    of_sample = (
        f"{rate:g} with {samples:,} samples a step is {rate / samples:.2g} a sample, which is high for {name}"
    )
    is_clipped = any(check.at("Optimizer", key) is not None for key in ("clip_norm", "clip_norm_global"))
    if not clipped.allow(rate, samples):
        check.warning(
            path,
            "high_learning_rate",
            f"{of_sample} (the limits are {clipped.rate:g}, and {clipped.per_sample:g} a sample): the loss often "
            f"becomes NaN, or CTC reads only blanks. Fix: a lower rate, or a larger batch.",
        )
    elif not is_clipped and not free.allow(rate, samples):
        check.warning(
            path,
            "no_gradient_clip",
            f"{of_sample} without a gradient clip. Fix: `clip_norm_global: 5.0` below Optimizer, or a lower rate.",
        )


def _highest_rate(check: ConfigCheck) -> tuple[float, KeyPath]:
    """Return the highest learning rate of the schedule, with its path; 0 if there is none."""
    values = listed(check.at("Optimizer", "lr", "values"))  # the rates of the schedule Piecewise
    paths: list[KeyPath] = [("Optimizer", "lr", key) for key in _RATES]
    paths += [("Optimizer", "lr", "values", str(index)) for index in range(len(values))]
    return max((_number(check.at(*path)) or 0.0, path) for path in paths)


def _check_warm_up(check: ConfigCheck) -> None:
    path = ("Optimizer", "lr", "warmup_epoch")
    warm_up, epochs = _number(check.at(*path)), check.at("Global", "epoch_num")
    if warm_up and isinstance(epochs, int) and 0 < epochs <= warm_up / LONG_WARM_UP:
        check.warning(path, "long_warm_up", long_warm_up(f"{warm_up:g} epochs", f"{epochs} epochs"))


def long_warm_up(warm_up: str, length: str) -> str:
    """Return the message of a warm-up that is too long for the run."""
    return (
        f"the warm-up takes {warm_up} of {length}, so little is left of the full learning rate. "
        f"Fix: a shorter warm-up, at most a tenth of the run, or more epochs."
    )


def _check_batch(check: ConfigCheck) -> None:
    path = ("Train", "sampler", "first_bs")
    size = _number(check.at(*path))
    if check.at("Train", "sampler", "name") != SCALE_SAMPLER or size is None or size >= 1:
        return
    fix = "Fix: the batch size, such as 64."
    if check.at("Train", "sampler", "fix_bs") is False:
        check.warning(path, "small_batch", f"found {size:g}: every batch has one sample. {fix}")
    else:
        check.error(path, "small_batch", f"found {size:g}: PaddleOCR's sampler never ends. {fix}")


def _check_loss_weights(check: ConfigCheck) -> None:
    paths: list[KeyPath] = [("Loss", "weight_1"), ("Loss", "weight_2")]
    paths += [(*path, "weight") for _, path in named_items(check.config, "Loss", "loss_config_list")]
    for path in paths:
        weight = _number(check.at(*path))
        if weight is not None and weight <= 0:
            effect = "trains nothing" if weight == 0 else "is made larger, not smaller"
            check.warning(
                path,
                "loss_weight",
                f"found {weight:g}: this loss {effect}. Fix: a number above 0, or remove the loss.",
            )


def _check_evaluated(check: ConfigCheck) -> None:
    """Warn if the decoder or the metric reads only frozen sub-models, whose accuracy never changes."""
    for path in (("PostProcess", "model_name"), ("Metric", "key")):
        value = check.at(*path)
        names = value if isinstance(value, tuple) else (value,)
        if value and all(is_frozen(check, name) for name in names):
            check.warning(
                path,
                "frozen_is_evaluated",
                f"found only the frozen {', '.join(map(str, names))}, whose accuracy never changes. Fix: name the "
                f"trained sub-model.",
            )


def _number(value: Any) -> float | None:
    """Return ``value`` as a float, or None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(max(min(value, _LARGEST), -_LARGEST))  # a whole number may be too large for a float
