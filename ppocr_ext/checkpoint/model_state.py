"""State of a network: what a checkpoint stores of it, its digest, its size; imports no Paddle."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

STATISTICS = ("._mean", "._variance")  # of BatchNorm, which Paddle counts as parameters


def trained_state(model: Any, frozen: Iterable[str] = ()) -> dict[str, Any]:
    """Return the state that a checkpoint stores: that of ``model`` without the sub-models named in ``frozen``."""
    prefixes = tuple(f"{name}." for name in frozen)
    return {name: value for name, value in model.state_dict().items() if not name.startswith(prefixes)}


def parameter_names(model: Any) -> dict[str, str]:
    """Return the name that Paddle generated, by the name in the model, for each trained parameter."""
    return {name: p.name for name, p in model.named_parameters() if not p.stop_gradient}


def count_parameters(layer: Any, trained_only: bool = False) -> int:
    """Return how many numbers ``layer`` learns, without BatchNorm's running statistics, which Paddle counts too."""
    return sum(
        int(np.prod(p.shape))
        for name, p in layer.named_parameters()
        if not name.endswith(STATISTICS) and not (trained_only and p.stop_gradient)
    )


def state_digest(layer: Any) -> str:
    """Return the SHA-256 over names and bytes of all parameters and buffers of ``layer``."""
    digest = hashlib.sha256()
    for name, tensor in sorted(layer.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
