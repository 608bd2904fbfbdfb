"""Warn of settings that PaddleOCR accepts and with which a training rarely succeeds."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from ppocr_ext.base.parts import SCALE_SAMPLER
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.config_check import Path as KeyPath
from ppocr_ext.check.sub_models import is_frozen, listed
from ppocr_ext.config import named_items
from ppocr_ext.data.batches import samples_per_step

_RATES = ("learning_rate", "max_lr")
_LARGEST = sys.float_info.max
_DECAY = "{:g} pulls all weights to 0 faster than they learn. Fix: 0.05 (AdamW), 3e-5 (L2 of Adam)."
_FADES = "found {:g}: earlier gradients never fade, so the weights grow without end. Fix: 0.9."
# key of Optimizer, the greatest value without a warning, code, and message
_MOST = (
    (("weight_decay",), 1.0, "high_weight_decay", _DECAY),
    (("regularizer", "factor"), 0.1, "high_weight_decay", _DECAY),  # PaddleOCR's configs have 1e-5 to 1e-4
    (("momentum",), math.nextafter(1, 0), "high_momentum", _FADES),
    (("rho",), math.nextafter(1, 0), "high_momentum", _FADES),
)


class RateLimits(NamedTuple):
    """The learning rate, and the rate divided by the samples of a step, above which a warning is given.

    PaddleOCR's recognition configs and the shipped ones stay below all of them (tests in tests/check).
    """

    rate: float
    per_sample: float

    def allow(self, rate: float, samples: int) -> bool:
        """Return True if a rate with these samples of a step gives no warning."""
        return not (rate > self.rate or rate / samples > self.per_sample)  # NaN is reported as such


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
    """Compare the learning rate with what the optimizer bears."""
    rate, path = _highest_rate(check)
    samples = samples_per_step(check.config, check.processes)
    constant: KeyPath = ("Optimizer", "lr", "learning_rate")
    if not rate and _number(check.at(*constant)) == 0:
        check.warning(
            constant,
            "zero_learning_rate",
            "found 0, so nothing is trained. Fix: a rate above 0, such as 0.001 (AdamW).",
        )
    if not rate or samples is None:
        return
    name = str(check.at("Optimizer", "name"))
    if name not in _LIMITS:
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
            f"{of_sample} (more than {clipped.rate:g}, or {clipped.per_sample:g} a sample): the loss often becomes "
            f"NaN, or CTC reads only blanks. Fix: a lower rate, or a larger batch.",
        )
    elif not is_clipped and not free.allow(rate, samples):
        check.warning(
            path,
            "no_gradient_clip",
            f"{of_sample} without a gradient clip. Fix: `clip_norm_global: 5.0` below Optimizer, or a lower rate.",
        )


def _highest_rate(check: ConfigCheck) -> tuple[float, KeyPath]:
    """Return the highest learning rate of the schedule, with its path; 0 if there is none."""
    paths: list[KeyPath] = [("Optimizer", "lr", key) for key in _RATES]
    values = check.at("Optimizer", "lr", "values")  # of Piecewise
    paths += [("Optimizer", "lr", "values", str(index)) for index in range(len(listed(values)))]
    return max((_number(check.at(*path)) or 0.0, path) for path in paths)


def _check_warm_up(check: ConfigCheck) -> None:
    path = ("Optimizer", "lr", "warmup_epoch")
    warm_up, epochs = _number(check.at(*path)), check.at("Global", "epoch_num", default=1)
    if warm_up and isinstance(epochs, int) and warm_up >= epochs > 0:
        check.warning(path, "long_warm_up", long_warm_up(f"{warm_up:g} epochs", f"{epochs} epochs"))


def long_warm_up(warm_up: str, length: str) -> str:
    """Return the message of a warm-up that lasts as long as the run."""
    return (
        f"the run ends within its warm-up ({warm_up} of {length}), before the full learning rate. "
        f"Fix: a shorter warm-up, at most a tenth of the run, or more epochs."
    )


def _check_batch(check: ConfigCheck) -> None:
    path = ("Train", "sampler", "first_bs")
    size = _number(check.at(*path))
    if check.at("Train", "sampler", "name") != SCALE_SAMPLER or size is None or size >= 1:
        return
    goes_on = check.at("Train", "sampler", "fix_bs") is False
    effect = "every batch has one sample" if goes_on else "PaddleOCR's sampler never ends"
    report = check.warning if goes_on else check.error
    report(path, "small_batch", f"found {size:g}: {effect}. Fix: the batch size, such as 64.")


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
    """Warn of a decoder or a metric that sees only a frozen sub-model, whose accuracy never changes."""
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
    """Return a number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(max(min(value, _LARGEST), -_LARGEST))  # a whole number may be larger than any float
