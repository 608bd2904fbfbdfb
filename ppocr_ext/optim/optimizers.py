"""Build optimizers by PaddleOCR's names, on Paddle's own classes, from the ``Optimizer`` section of a config.

Common arguments of the optimizers (given by the program):
    model: its trainable parameters are optimised; frozen ones are not passed.
    learning_rate: a float or a schedule.
    weight_decay: the factor of L2 decay, a Paddle regularizer, or None.
    grad_clip: a Paddle gradient clip, or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import paddle
from paddle import nn
from paddle import optimizer as optim
from paddle.optimizer.lr import LRScheduler

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.messages import near_match
from ppocr_ext.optim.schedules import Rate
from ppocr_ext.registry import OPTIMIZERS, SCHEDULES

_ADAMW_DECAY = 0.01
_DEFAULT_SCHEDULE = "Const"
_CLIPS = {"clip_norm": paddle.nn.ClipGradByNorm, "clip_norm_global": paddle.nn.ClipGradByGlobalNorm}


def option_errors(options: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield path, code and message for each value of ``Optimizer`` that is wrong or conflicts with another value."""
    for one, other in (("regularizer", "weight_decay"), ("clip_norm", "clip_norm_global")):
        if options.get(one) is not None and options.get(other) is not None:
            yield (
                (one,),
                "conflicting_keys",
                f"`{one}` and `{other}` cannot be used together. Fix: remove one of them.",
            )
    if options.get("group_lr"):
        yield (
            ("group_lr",),
            "unsupported_key",
            "PaddleOCR uses it to group the parameters of VisionLAN. Fix: remove it, and give factors by pattern, such "
            'as `lr_mult: {"*": 0.1, "head.*": 1.0}`; the last pattern that matches is used.',
        )
    yield from _factor_errors(options.get("lr_mult"))
    regularizer = options.get("regularizer")
    if isinstance(regularizer, Mapping) and regularizer:
        name = regularizer.get("name")
        if str(name).removesuffix("Decay") not in ("L1", "L2"):
            yield ("regularizer", "name"), "bad_value", f"found {name!r}, expected L1 or L2."


def _factor_errors(factors: Any) -> Iterator[tuple[tuple[str, ...], str, str]]:
    if factors is not None and not isinstance(factors, Mapping):
        yield (
            ("lr_mult",),
            "bad_value",
            f'found {factors!r}, expected factors by pattern, such as {{"backbone.*": 0.1}}.',
        )
        return
    for pattern, factor in (factors or {}).items():
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 <= factor < float("inf"):
            yield (
                ("lr_mult", str(pattern)),
                "bad_value",
                f"found the factor {factor!r}, expected a number of 0 or more.",
            )


@contextmanager
def _as_config_error(where: str) -> Iterator[None]:
    """Turn Paddle's errors about wrong and missing options into a ConfigError."""
    try:
        yield
    except (TypeError, ValueError, AssertionError) as reason:
        raise ConfigError(f"{where}: {str(reason).rstrip('.')}.", code="bad_value") from reason


def build_lr_scheduler(lr_config: Mapping[str, Any], epochs: int, step_each_epoch: int) -> Rate:
    """Build the schedule that ``Optimizer.lr`` names; a float if the rate never changes.

    Raises:
        ConfigError: an unknown name or key, or a value that cannot be used.
    """
    options = dict(lr_config)
    name = options.pop("name", _DEFAULT_SCHEDULE)
    with _as_config_error(f"Optimizer.lr: {name}"):
        rate = SCHEDULES.build(name, options, epochs=epochs, step_each_epoch=step_each_epoch)
        # PaddleOCR's own classes, from a checkout, store the options and return the schedule when called.
        return rate if isinstance(rate, (LRScheduler, float)) else rate()


def build_optimizer(
    config: Mapping[str, Any], epochs: int, step_each_epoch: int, model: paddle.nn.Layer
) -> tuple[paddle.optimizer.Optimizer, Rate]:
    """Build the optimizer of ``model``'s trainable parameters, and its schedule (a float if the rate never changes).

    ``config`` is the section ``Optimizer``: ``name``, ``lr``, ``regularizer: {name: L1 | L2, factor}`` or
    ``weight_decay``, ``clip_norm`` (of each gradient) or ``clip_norm_global`` (of all gradients together), and the keys
    of the optimizer. ``lr_mult: {pattern: factor}`` sets the rates of parts of the network.

    Raises:
        ConfigError: a key is missing, unknown or conflicts with another key, or a value cannot be used.
        ModelError: no parameter is trainable.
    """
    options = dict(config)
    name = options.pop("name", None)
    if not isinstance(name, str):
        names = ", ".join(OPTIMIZERS.names())
        raise ConfigError(f"Optimizer: `name` is missing. Fix: give one of {names}.", code="missing_key")
    if not isinstance(options.get("lr"), Mapping):
        raise ConfigError(
            "Optimizer: `lr` is missing. Fix: add it, such as `lr: {name: Cosine, learning_rate: 0.001}`.",
            code="missing_key",
        )
    for path, code, message in option_errors(options):
        raise ConfigError(f"Optimizer.{'.'.join(path)}: {message}", code=code)
    options.pop("group_lr", None)
    trainable_parameters(model)
    set_rates(model, options.pop("lr_mult", None) or {})
    rate = build_lr_scheduler(options.pop("lr"), epochs, step_each_epoch)
    with _as_config_error(f"Optimizer: {name}"):
        decay = options.pop("weight_decay", None)
        regularizer = options.pop("regularizer", None)
        if regularizer:
            decay = float(regularizer.get("factor", 0.0))  # factor of L2 decay
            if str(regularizer["name"]).startswith("L1"):
                decay = paddle.regularizer.L1Decay(decay)
        norms = {clip: options.pop(key, None) for key, clip in _CLIPS.items()}
        clip = next((clip(clip_norm=float(norm)) for clip, norm in norms.items() if norm is not None), None)
        optimizer = OPTIMIZERS.build(
            name, options, model=model, learning_rate=rate, weight_decay=decay, grad_clip=clip
        )
        if not isinstance(optimizer, paddle.optimizer.Optimizer):
            optimizer = optimizer(model)  # PaddleOCR's own class, as above
    return optimizer, rate


def trainable_parameters(model: paddle.nn.Layer) -> list[paddle.Tensor]:
    """Return the parameters of ``model`` that get a gradient.

    Raises:
        ModelError: no parameter gets one.
    """
    parameters = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    if not parameters:
        raise ModelError(
            "The model has no trainable parameter. Fix: let Global.freeze match fewer parameters, or set "
            "`freeze_params: false` for at least one sub-model of Architecture.Models.",
            code="nothing_to_train",
        )
    return parameters


@OPTIMIZERS.register("Momentum")
def momentum(
    model: paddle.nn.Layer,
    learning_rate: Rate,
    momentum: float,
    weight_decay: Any = None,
    grad_clip: Any = None,
) -> optim.Momentum:
    """Build stochastic gradient descent with ``momentum``."""
    return optim.Momentum(
        learning_rate=learning_rate,
        momentum=momentum,
        parameters=trainable_parameters(model),
        weight_decay=weight_decay,
        grad_clip=grad_clip,
    )


@OPTIMIZERS.register("Adam")
def adam(
    model: paddle.nn.Layer,
    learning_rate: Rate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: Any = None,
    grad_clip: Any = None,
    lazy_mode: bool = False,
) -> optim.Adam:
    """Build Adam (Kingma and Ba, ICLR 2015); decay is added to the gradient."""
    return optim.Adam(
        learning_rate=learning_rate,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        parameters=trainable_parameters(model),
        weight_decay=weight_decay,
        grad_clip=grad_clip,
        lazy_mode=lazy_mode,
    )


@OPTIMIZERS.register("AdamW")
def adamw(
    model: paddle.nn.Layer,
    learning_rate: Rate,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float | None = None,
    multi_precision: bool = False,
    grad_clip: Any = None,
    no_weight_decay_name: str | None = None,
    one_dim_param_no_weight_decay: bool = False,
    lazy_mode: bool = False,
) -> optim.AdamW:
    """Build Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019).

    Args beyond the common ones:
        weight_decay: 0.01 if None.
        no_weight_decay_name: words. Parameters whose name (``Student.backbone.…``) contains one are not decayed.
        one_dim_param_no_weight_decay: parameters with one axis (biases, norms) are not decayed.

    Raises:
        ConfigError: ``weight_decay`` is not a number (an L1 regularizer).
    """
    if weight_decay is None:
        weight_decay = _ADAMW_DECAY
    if not isinstance(weight_decay, (int, float)):
        raise ConfigError(
            "Optimizer: AdamW cannot use an L1 regularizer. Fix: give `weight_decay: NUMBER`.",
            code="conflicting_keys",
        )
    words = no_weight_decay_name.split() if no_weight_decay_name else []
    undecayed = {
        parameter.name
        for name, parameter in model.named_parameters()
        if any(word in name for word in words) or (one_dim_param_no_weight_decay and parameter.ndim == 1)
    }
    return optim.AdamW(
        learning_rate=learning_rate,
        beta1=beta1,
        beta2=beta2,
        epsilon=epsilon,
        parameters=trainable_parameters(model),
        weight_decay=float(weight_decay),
        apply_decay_param_fun=lambda name: name not in undecayed,
        grad_clip=grad_clip,
        lazy_mode=lazy_mode,
        multi_precision=multi_precision,
    )


@OPTIMIZERS.register("RMSProp")
def rms_prop(
    model: paddle.nn.Layer,
    learning_rate: Rate,
    momentum: float = 0.0,
    rho: float = 0.95,
    epsilon: float = 1e-6,
    weight_decay: Any = None,
    grad_clip: Any = None,
) -> optim.RMSProp:
    """Build RMSProp (Hinton's lecture 6)."""
    return optim.RMSProp(
        learning_rate=learning_rate,
        rho=rho,
        epsilon=epsilon,
        momentum=momentum,
        parameters=trainable_parameters(model),
        weight_decay=weight_decay,
        grad_clip=grad_clip,
    )


@OPTIMIZERS.register("Adadelta")
def adadelta(
    model: paddle.nn.Layer,
    learning_rate: Rate,
    epsilon: float = 1e-8,
    rho: float = 0.95,
    weight_decay: Any = None,
    grad_clip: Any = None,
) -> optim.Adadelta:
    """Build Adadelta (Zeiler, 2012)."""
    return optim.Adadelta(
        learning_rate=learning_rate,
        epsilon=epsilon,
        rho=rho,
        parameters=trainable_parameters(model),
        weight_decay=weight_decay,
        grad_clip=grad_clip,
    )


@dataclass(frozen=True)
class TrainedPart:
    """A row of the table of parts.

    Attributes:
        name: the name of the part, such as ``backbone`` or ``head.ctc_head``; with sub-models, ``Student.backbone``.
        parameters: its number of weights.
        trained: the number of trained weights.
        rates: the learning rate factors of the trained weights, in ascending order.
    """

    name: str
    parameters: int
    trained: int
    rates: tuple[float, ...]


def set_rates(network: nn.Layer, factors: Mapping[str, float]) -> dict[str, float]:
    """Multiply the learning rate of parameters by the factor of the last pattern that matches them.

    The network's own factors (0.1 for learnable affines) stay in effect.

    Args:
        network: patterns match its names in ``state_dict``.
        factors: factor by shell pattern.

    Returns:
        Factor by name of the parameter.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    matched = match_patterns(network, factors, "Optimizer.lr_mult")
    for name, parameter in named_weights(network):
        if name in matched:
            own = parameter.optimize_attr.get("learning_rate", 1.0)
            parameter.optimize_attr["learning_rate"] = own * float(factors[matched[name]])
    return {name: float(factors[pattern]) for name, pattern in matched.items()}


def named_weights(network: nn.Layer) -> Iterator[tuple[str, Any]]:
    """Yield names and parameters, without BatchNorm's running statistics, which Paddle counts as parameters."""
    for name, parameter in network.named_parameters():
        if not name.endswith(("._mean", "._variance")):
            yield name, parameter


def match_patterns(network: nn.Layer, patterns: Iterable[str], key: str) -> dict[str, str]:
    """Return the last pattern that matches each parameter, by the parameter's name; others are missing.

    Args:
        network: patterns match its names in ``state_dict``.
        patterns: shell patterns.
        key: the key of the config, for messages.

    Raises:
        ConfigError: a pattern matches nothing; the message has a near name, or the pattern with a sub-model.
    """
    names = [name for name, _ in named_weights(network)]
    found: dict[str, str] = {}
    for pattern in patterns:
        matched = [name for name in names if fnmatchcase(name, str(pattern))]
        if not matched:
            raise ConfigError(
                f"{key}: {pattern!r} matches no parameter. {_hint(network, str(pattern), names)}",
                code="no_match",
            )
        found.update(dict.fromkeys(matched, str(pattern)))
    return found


def _hint(network: nn.Layer, pattern: str, names: Sequence[str]) -> str:
    models = getattr(network, "model_name_list", None) or ()
    with_prefix = [
        model for model in models if any(fnmatchcase(name, f"{model}.{pattern}") for name in names)
    ]
    frozen = getattr(network, "frozen", ())
    trained = [model for model in with_prefix if model not in frozen] or with_prefix
    if trained:
        return f"Fix: name the sub-model: {' or '.join(f'{model}.{pattern}' for model in trained)}."
    parts = {
        ".".join(words[:end]) for words in (name.split(".") for name in names) for end in range(1, len(words))
    }
    near = near_match(pattern.rstrip("*").rstrip("."), parts, cutoff=0.6)
    first = sorted({name.split(".")[0] for name in names})
    return f"Did you mean '{near}.*'?" if near else f"Names begin with {', '.join(first)}."


def trained_parts(network: nn.Layer) -> list[TrainedPart]:
    """Return the parts of a network with their parameters: backbone, neck, and each branch of the head."""
    depth = 3 if getattr(network, "model_name_list", None) else 2
    rows: dict[str, list[tuple[int, bool, float]]] = {}
    for name, parameter in named_weights(network):
        words = name.split(".")[:-1][:depth]
        part = ".".join(words[:-1] if len(words) == depth and words[-2] != "head" else words)
        rate = parameter.optimize_attr.get("learning_rate", 1.0)
        size = int(parameter.size)
        rows.setdefault(part, []).append((size, not parameter.stop_gradient, rate))
    return [
        TrainedPart(
            part,
            sum(size for size, _, _ in entries),
            sum(size for size, trained, _ in entries if trained),
            tuple(sorted({rate for _, trained, rate in entries if trained})),
        )
        for part, entries in rows.items()
    ]


def parts_table(parts: Sequence[TrainedPart]) -> str:
    """Return the table that a run prints at its start."""
    width = max(len(part.name) for part in parts)
    lines = [f"{'part':{width}}  {'parameters':>12}  {'trained':>12}  rate"]
    for part in parts:
        rates = ", ".join(f"x {rate:g}" for rate in part.rates) or "-"
        lines.append(f"{part.name:{width}}  {part.parameters:>12,}  {part.trained:>12,}  {rates}")
    return "\n".join(lines)
