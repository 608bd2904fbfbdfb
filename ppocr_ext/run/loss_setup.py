"""What a loss needs of the model before the first step, and its own state in a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.model_state import state_digest
from ppocr_ext.errors import WeightsError
from ppocr_ext.losses.base import FEATURES, Loss
from ppocr_ext.losses.center import CenterLoss
from ppocr_ext.losses.distillation_center import DistillationCenterLoss
from ppocr_ext.modeling.features import classifier_of, ctc_head_of

_LOG = logging.getLogger("ppocr_ext")


def prepare_loss(
    loss: Any,
    reads: Iterable[tuple[str | None, str]] | None,
    model: Any,
    charset: Charset,
    begins: bool = True,
) -> None:
    """Let the heads whose features the loss reads give them, and tell the loss what it works on.

    Args:
        loss: of any kind; only ours are told.
        reads: what it reads, as :meth:`Loss.reads` says.
        model: with sub-models of the names in ``reads``.
        charset: the dictionary.
        begins: the run starts here and does not go on from a checkpoint, whose weights have moved on from its centers.

    Raises:
        PPOCRExtError: a model has no CTC head, or centers do not fit.
    """
    sizes: dict[str | None, int] = {}
    for name, output in reads or ():
        if output == FEATURES:
            head = ctc_head_of(model if name is None else getattr(model, name))
            head.return_feats = True
            sizes[name] = int(classifier_of(head).weight.shape[0])
    if isinstance(loss, Loss):
        loss.prepare(charset, sizes)
        if begins:
            _compare_weights(loss, model)


def _compare_weights(loss: Loss, model: Any) -> None:
    """Warn of centers that were exported from other weights than the model has."""
    for name, center in _center_losses(loss):
        meta = {} if center.table is None else center.table.meta
        if name is not None and meta.get("model") not in (None, name):
            continue  # of another sub-model, which is said already
        made_of = meta.get("model_digest")
        if made_of is not None and made_of != state_digest(model if name is None else getattr(model, name)):
            _LOG.warning(
                "%s was exported from other weights than %s starts from, so that its features may lie elsewhere. "
                "Export the centers from the weights that are given as Global.pretrained_model.",
                center.center_file_path,
                "the model" if name is None else name,
            )


def _center_losses(loss: nn.Layer) -> Iterator[tuple[str | None, CenterLoss]]:
    """Each CenterLoss within ``loss``, with its sub-model."""
    if isinstance(loss, CenterLoss):
        yield None, loss
    elif isinstance(loss, DistillationCenterLoss):
        yield from loss.losses.items()
    else:
        for child in loss.children():
            yield from _center_losses(child)


def loss_state(loss: Any) -> dict[str, np.ndarray]:
    """State of a loss (centers) by name; empty where it has none."""
    if not isinstance(loss, nn.Layer):
        return {}
    return {name: value.numpy() for name, value in loss.state_dict().items()}


def restore_loss(loss: Any, state: Mapping[str, np.ndarray], prefix: Path) -> None:
    """Put the state of a checkpoint back; a loss that the checkpoint does not know starts as it is.

    Raises:
        WeightsError: an entry has another shape.
    """
    now = loss_state(loss)
    wrong = [name for name in now if name in state and now[name].shape != np.shape(state[name])]
    if wrong:
        raise WeightsError(
            f"{prefix}: the loss's {wrong[0]} has the shape {list(np.shape(state[wrong[0]]))} there and "
            f"{list(now[wrong[0]].shape)} here. Go on with the loss and the dictionary that the run began with, or "
            f"start afresh from its weights: -o Global.pretrained_model={prefix}."
        )
    lacking = sorted(now.keys() - state.keys())
    if lacking:
        _LOG.info("%s has no state of the loss for %s, which begins anew", prefix, ", ".join(lacking))
    if now.keys() & state.keys():
        loss.set_state_dict({name: state[name] for name in now if name in state})
