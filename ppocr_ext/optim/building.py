"""Build the optimizer and its schedule from the ``Optimizer`` section of a config, which is never changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import paddle
from paddle.optimizer.lr import LRScheduler

from ppocr_ext.errors import ConfigError
from ppocr_ext.optim.optimizers import trainable_parameters
from ppocr_ext.optim.schedules import Rate
from ppocr_ext.registry import OPTIMIZERS, SCHEDULES

_DEFAULT_SCHEDULE = "Const"


def option_errors(options: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield path, code and message of each value of ``Optimizer`` that cannot be used, or not with another one."""
    for one, other in (("regularizer", "weight_decay"), ("clip_norm", "clip_norm_global")):
        if options.get(one) is not None and options.get(other) is not None:
            yield (
                (one,),
                "conflicting_keys",
                f"`{one}` and `{other}` exclude each other. Fix: keep one of them.",
            )
    if options.get("group_lr"):
        yield (
            ("group_lr",),
            "unsupported_key",
            "there is one learning rate for all parameters. Fix: remove the key.",
        )
    regularizer = options.get("regularizer")
    if isinstance(regularizer, Mapping) and regularizer:
        name = regularizer.get("name")
        if str(name).removesuffix("Decay") not in ("L1", "L2"):
            yield ("regularizer", "name"), "bad_value", f"found {name!r}, expected L1 or L2."


@contextmanager
def _as_config_error(where: str) -> Iterator[None]:
    """Paddle's complaints about an option, and a missing option, as an error that a user can act on."""
    try:
        yield
    except (TypeError, ValueError, AssertionError) as reason:
        raise ConfigError(f"{where}: {reason}") from reason


def build_lr_scheduler(lr_config: Mapping[str, Any], epochs: int, step_each_epoch: int) -> Rate:
    """The schedule that ``Optimizer.lr`` names; a float where the rate never changes.

    Raises:
        ConfigError: an unknown name or key, or a value that cannot be used.
    """
    options = dict(lr_config)
    name = options.pop("name", _DEFAULT_SCHEDULE)
    with _as_config_error(f"Optimizer.lr ({name})"):
        rate = SCHEDULES.build(name, options, epochs=epochs, step_each_epoch=step_each_epoch)
        # PaddleOCR's own classes, from a checkout, hold the options and give the schedule when called.
        return rate if isinstance(rate, (LRScheduler, float)) else rate()


def build_optimizer(
    config: Mapping[str, Any], epochs: int, step_each_epoch: int, model: paddle.nn.Layer
) -> tuple[paddle.optimizer.Optimizer, Rate]:
    """The optimizer of ``model``'s trainable parameters, and its schedule (a float where the rate never changes).

    ``config`` is the ``Optimizer`` section: ``name``, ``lr``, ``regularizer: {name: L1 | L2, factor}`` or
    ``weight_decay``, ``clip_norm`` (each gradient by itself) or ``clip_norm_global`` (all together), and
    the optimizer's own keys.

    Raises:
        ConfigError: something is missing, unknown, said twice, or of a value that cannot be used.
        ModelError: no parameter is trainable.
    """
    options = dict(config)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"Optimizer: `name` is missing. One of: {', '.join(OPTIMIZERS.names())}.")
    if not isinstance(options.get("lr"), Mapping):
        raise ConfigError("Optimizer: `lr` is missing, such as `lr: {name: Cosine, learning_rate: 0.001}`.")
    for path, code, message in option_errors(options):
        raise ConfigError(f"Optimizer.{'.'.join(path)}: {message}", code=code)
    options.pop("group_lr", None)
    trainable_parameters(model)
    rate = build_lr_scheduler(options.pop("lr"), epochs, step_each_epoch)
    with _as_config_error(f"Optimizer ({name})"):
        given = {
            "model": model,
            "learning_rate": rate,
            "weight_decay": _take_decay(options),
            "grad_clip": _take_clip(options),
        }
        optimizer = OPTIMIZERS.build(name, options, **given)
        if not isinstance(optimizer, paddle.optimizer.Optimizer):
            optimizer = optimizer(model)  # PaddleOCR's own class, as above
    return optimizer, rate


def _take_decay(options: dict[str, Any]) -> Any:
    """Take ``regularizer`` or ``weight_decay`` out of ``options``: a factor of L2, Paddle's L1Decay, or None."""
    regularizer, decay = options.pop("regularizer", None), options.pop("weight_decay", None)
    if not regularizer:
        return decay
    factor = float(regularizer.get("factor", 0.0))
    return paddle.regularizer.L1Decay(factor) if str(regularizer["name"]).startswith("L1") else factor


def _take_clip(options: dict[str, Any]) -> Any:
    """Take ``clip_norm`` or ``clip_norm_global`` out of ``options``: Paddle's gradient clip, or None."""
    each, together = options.pop("clip_norm", None), options.pop("clip_norm_global", None)
    if each is not None:
        return paddle.nn.ClipGradByNorm(clip_norm=float(each))
    if together is not None:
        return paddle.nn.ClipGradByGlobalNorm(clip_norm=float(together))
    return None
