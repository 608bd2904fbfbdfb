"""Averaged weights: which a checkpoint holds, and the others that it keeps; no Paddle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ppocr_ext.checkpoint.checkpoints import Checkpoint, TrainState
from ppocr_ext.checkpoint.weight_values import require_usable_values
from ppocr_ext.errors import WeightsError

EMA = "Ema"  # the hook that keeps the average, in `TrainState.hooks`


def weights_note(state: TrainState) -> str | None:
    """Return what kind of weights a checkpoint holds; None if its run averaged none."""
    if state.raw_weights:
        return "averaged weights (Global.ema); the raw ones are in its training state"
    if EMA in (state.hooks or {}):
        return "raw weights; the averaged ones (Global.ema) are in its training state"
    return None


def require_usable_averages(checkpoint: Checkpoint, state: TrainState) -> None:
    """Check the averaged and the raw weights in the training state of a checkpoint, as its weights are checked.

    Raises:
        WeightsError: see :func:`ppocr_ext.checkpoint.weight_values.require_usable_values`.
    """
    for kept in (average_in(state.hooks or {}), state.raw_weights or {}):
        require_usable_values(checkpoint.file(".states"), kept)


def average_in(hook_states: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the averaged weights by name; empty without ``Global.ema``."""
    return hook_states.get(EMA, {}).get("average", {})


def other_weights(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Return the weights that a checkpoint does not hold as its own: the raw ones, or the averaged ones.

    Raises:
        WeightsError: it has only one kind, or the others have no usable numbers.
    """
    state = checkpoint.train_state()
    require_usable_averages(checkpoint, state)
    others = state.raw_weights or average_in(state.hooks or {})
    if not others:
        raise WeightsError(
            f"{checkpoint.prefix} holds one kind of weights. Fix: train with Global.ema to have averaged ones too.",
            code="no_average",
        )
    return {**checkpoint.weights(), **others}
