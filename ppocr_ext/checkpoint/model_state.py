"""State of a network: what a checkpoint stores of it, its digest, its size; imports no Paddle."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppocr_ext.io.resources import file_digest

if TYPE_CHECKING:
    from paddle.nn import Layer

STATISTICS = ("._mean", "._variance")  # of BatchNorm, which Paddle counts as parameters


def trained_state(model: Layer, frozen: Iterable[str] = ()) -> dict[str, Any]:
    """Return the state that a checkpoint stores: that of ``model`` without the sub-models named in ``frozen``."""
    prefixes = tuple(f"{name}." for name in frozen)
    return {name: value for name, value in model.state_dict().items() if not name.startswith(prefixes)}


def parameter_names(model: Layer) -> dict[str, str]:
    """Return the name that Paddle generated, by the name in the model, for each trained parameter."""
    return {name: p.name for name, p in model.named_parameters() if not p.stop_gradient}


def count_parameters(layer: Layer, trained_only: bool = False) -> int:
    """Return how many numbers ``layer`` learns, without BatchNorm's running statistics, which Paddle counts too."""
    return sum(
        int(np.prod(p.shape))
        for name, p in layer.named_parameters()
        if not name.endswith(STATISTICS) and not (trained_only and p.stop_gradient)
    )


def state_digest(layer: Layer) -> str:
    """Return the SHA-256 over names and bytes of all parameters and buffers of ``layer``."""
    digest = hashlib.sha256()
    for name, tensor in sorted(layer.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def code_digest(layer: Layer) -> str:
    """Return the SHA-256 over the source files of what computes ``layer``; Paddle itself is not part of it.

    They are those of the classes of all layers, of their bases, of functions that layers were given, and the file that
    states the version of this package. What they import from another module is not followed.
    """
    layers = layer.sublayers(include_self=True)
    functions = (value for each in layers for value in vars(each).values() if inspect.isroutine(value))
    parts = {
        str(part.__module__)
        for part in (*functions, *(base for each in layers for base in type(each).__mro__))
    }
    files = {name: str(getattr(sys.modules.get(name), "__file__", "")) for name in (*parts, "ppocr_ext")}
    digests = {
        name: file_digest(file) if Path(file).is_file() else ""  # of an interactive session
        for name, file in sorted(files.items())
        if not name.startswith("paddle.")
    }
    return hashlib.sha256(repr(digests).encode()).hexdigest()
