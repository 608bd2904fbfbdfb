"""Connect a loss and its model before the first step, and restore the loss's own state from a checkpoint."""

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
from ppocr_ext.losses import CenterLoss, DistillationCenterLoss, LossContext
from ppocr_ext.losses.base_loss import FEATURES, OutputRef
from ppocr_ext.modeling.features import ctc_head_of, feature_sizes

_LOG = logging.getLogger("ppocr_ext")


def loss_context(model: Any, charset: Charset) -> LossContext:
    """Return what losses may need to know of ``model``, with or without sub-models, and the dictionary."""
    return LossContext(charset, feature_sizes(model))


def return_features(model: Any, required: Iterable[OutputRef]) -> None:
    """Let the CTC heads whose features are required return them.

    Raises:
        ModelError: a model has no CTC head.
    """
    for name, output in required:
        if output == FEATURES:
            ctc_head_of(model if name is None else getattr(model, name)).return_feats = True


def compare_center_weights(loss: Any, model: Any) -> None:
    """Warn of centers that were exported from other weights than the model has."""
    for name, center in _center_losses(loss):
        meta = {} if center.table is None else center.table.meta
        if name is not None and meta.get("model") not in (None, name):
            continue  # of another sub-model, which has its own warning
        made_of = meta.get("model_digest")
        if made_of is not None and made_of != state_digest(model if name is None else getattr(model, name)):
            _LOG.warning(
                "%s was exported from other weights than %s starts from, so that its features may lie elsewhere. "
                "Export the centers from the weights that are given as Global.pretrained_model.",
                center.center_file_path,
                "the model" if name is None else name,
            )


def _center_losses(loss: Any) -> Iterator[tuple[str | None, CenterLoss]]:
    """Yield each CenterLoss within ``loss``, with its sub-model."""
    if isinstance(loss, CenterLoss):
        yield None, loss
    elif isinstance(loss, DistillationCenterLoss):
        yield from loss.losses.items()
    elif isinstance(loss, nn.Layer):
        for child in loss.children():
            yield from _center_losses(child)


def loss_state(loss: Any) -> dict[str, np.ndarray]:
    """Return the state of a loss, such as centers, by name; empty if it has none."""
    if not isinstance(loss, nn.Layer):
        return {}
    return {name: value.numpy() for name, value in loss.state_dict().items()}


def restore_loss(loss: Any, state: Mapping[str, np.ndarray], prefix: Path) -> None:
    """Restore the state of a checkpoint; a loss that is not in it keeps its initial state.

    Raises:
        WeightsError: an entry has another shape.
    """
    now = loss_state(loss)
    wrong = [name for name in now if name in state and now[name].shape != np.shape(state[name])]
    if wrong:
        raise WeightsError(
            f"{prefix}: the loss's {wrong[0]} has the shape {list(np.shape(state[wrong[0]]))} there and "
            f"{list(now[wrong[0]].shape)} here. Go on with the loss and the dictionary that the run began with, or "
            f"start afresh from its weights: -o Global.pretrained_model={prefix}.",
            code="shape_mismatch",
        )
    lacking = sorted(now.keys() - state.keys())
    if lacking:
        _LOG.info("%s has no state of the loss for %s, which begins anew", prefix, ", ".join(lacking))
    if now.keys() & state.keys():
        loss.set_state_dict({name: state[name] for name in now if name in state})
