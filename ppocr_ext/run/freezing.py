"""Freeze parts of the networks of a run: those that its config names, and those that no loss can train."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base_loss import OutputRef
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import BaseModel, DistillationModel
from ppocr_ext.optim.trained_parts import freeze_parameters, layers_held_in_eval

_BEHIND_GUIDE = {"ctc", "neck", "features"}  # outputs whose gradient `use_guide` keeps from the backbone


def freeze_parts(model: Any, config: Config) -> None:
    """Freeze the parameters that ``Global.freeze`` names, and keep their BatchNorms and dropout in eval mode.

    Raises:
        ConfigError: a pattern matches nothing, or this kind of model cannot be frozen in part.
    """
    patterns = config.at("Global.freeze", default=None) or ()
    if not patterns:
        return
    networks = list(model.models.values()) if isinstance(model, DistillationModel) else [model]
    if not all(isinstance(network, BaseModel) for network in networks):
        reason = f"Global.freeze: {type(model).__name__} has no backbone, neck and head that could be frozen."
        raise ConfigError(reason, code="unsupported_key")
    names = freeze_parameters(model, patterns)
    for network in networks:
        network.held_in_eval = tuple(layers_held_in_eval(network))
    LOG.info("Global.freeze: %d parameters are frozen", len(names))


def freeze_guided(model: Any, reads: Iterable[OutputRef] | None) -> None:
    """Say what ``use_guide`` means for the backbone of each trained network, and freeze one that gets no gradient.

    ``use_guide`` of the necks `svtr` and `lightsvtr` detaches the features that the CTC branch reads.

    Args:
        model: one network, or several.
        reads: the outputs that the losses read; None if that is not known.
    """
    several = isinstance(model, DistillationModel)
    for name, network in model.models.items() if several else ((None, model),):
        backbone = getattr(network, "backbone", None)
        if backbone is None or getattr(network, "frozen", False):
            continue
        if not any(getattr(layer, "use_guide", False) for layer in network.sublayers()):
            continue
        who = f"{name}: " if name else ""
        read = None if reads is None else {output for of, output in reads if of == name}
        if all(parameter.stop_gradient for parameter in backbone.parameters()):
            LOG.info(
                "%sthe backbone is frozen, so only the heads are trained. With use_guide the CTC loss does not train "
                "the backbone, frozen or not.",
                who,
            )
        elif read and read <= _BEHIND_GUIDE:
            for parameter in backbone.parameters():  # a data-parallel reducer would wait for their gradients
                parameter.stop_gradient = True
            LOG.warning(
                "%sno loss trains the backbone: use_guide keeps the gradient of the CTC branch from it. Fix: train the "
                "second head too (MultiLoss, or a loss with dis_head: gtc), or set use_guide: false.",
                who,
            )
