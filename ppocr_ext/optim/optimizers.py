"""Optimizers by PaddleOCR's names, on Paddle's own classes.

Common arguments (given by the program):
    model: whose trainable parameters are optimised; frozen ones are not handed over.
    learning_rate: a float or a schedule.
    weight_decay: the factor of L2 decay, a Paddle regularizer, or None.
    grad_clip: a Paddle gradient clip, or None.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import optimizer as optim

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.optim.schedules import Rate
from ppocr_ext.registry import OPTIMIZERS

_ADAMW_DECAY = 0.01


def trainable_parameters(model: paddle.nn.Layer) -> list[paddle.Tensor]:
    """The parameters of ``model`` that get a gradient.

    Raises:
        ModelError: there is none.
    """
    parameters = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    if not parameters:
        raise ModelError(
            "The model has no trainable parameter. Set `freeze_params: false` for at least one sub-model "
            "of Architecture.Models."
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
    """Stochastic gradient descent with ``momentum``."""
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
    """Adam (Kingma and Ba, ICLR 2015); decay is added to the gradient."""
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
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019).

    Args beyond the common ones:
        weight_decay: 0.01 if None.
        no_weight_decay_name: words; a parameter whose name (``Student.backbone.…``) holds one is not decayed.
        one_dim_param_no_weight_decay: parameters with one axis (biases, norms) are not decayed.

    Raises:
        ConfigError: ``weight_decay`` is no number (an L1 regularizer).
    """
    if weight_decay is None:
        weight_decay = _ADAMW_DECAY
    if not isinstance(weight_decay, (int, float)):
        raise ConfigError(
            "AdamW decays weights by itself: give it `weight_decay: NUMBER`, not an L1 regularizer."
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
    """Root mean squared propagation (Hinton's lecture 6)."""
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
    """Adadelta (Zeiler, 2012)."""
    return optim.Adadelta(
        learning_rate=learning_rate,
        epsilon=epsilon,
        rho=rho,
        parameters=trainable_parameters(model),
        weight_decay=weight_decay,
        grad_clip=grad_clip,
    )
