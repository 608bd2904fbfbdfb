"""Reference numbers of PaddleOCR's components, and the weights and inputs that produced them.

Every value follows from a name and a seed, so a parity file needs to hold outputs only: a
parameter is drawn by its name in the state_dict, an input by its label.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DATA = Path(__file__).parent / "fixtures" / "parity"


class Case(NamedTuple):
    """A parity case: what it says of itself (``.json``) and its arrays (``.npz``, may be none)."""

    info: dict[str, Any]
    arrays: dict[str, np.ndarray]


def load_case(name: str) -> Case:
    """Read ``tests/fixtures/parity/NAME.json`` and, where there is one, ``NAME.npz``."""
    info = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    arrays: dict[str, np.ndarray] = {}
    archive = DATA / f"{name}.npz"
    if archive.exists():
        with np.load(archive, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    return Case(info, arrays)


def generator(name: str, seed: int) -> np.random.Generator:
    """The random stream that belongs to ``name``."""
    return np.random.default_rng((zlib.crc32(name.encode()), seed))


def array(label: str, shape: Iterable[int], seed: int, scale: float = 1.0) -> np.ndarray:
    """Standard-normal input times ``scale``, float32."""
    drawn = generator(label, seed).standard_normal(tuple(shape))
    return (scale * drawn).astype(np.float32)


def integers(label: str, shape: Iterable[int], low: int, high: int, seed: int) -> np.ndarray:
    """Uniform int64 in [low, high)."""
    return generator(label, seed).integers(low, high, tuple(shape)).astype(np.int64)


def weight(name: str, shape: Sequence[int], seed: int) -> np.ndarray:
    """Value of the parameter or buffer ``name``, float32, scaled so that activations stay tame."""
    noise = generator(name, seed).standard_normal(tuple(shape))
    kind = name.rpartition(".")[2]
    if kind == "_variance":
        value = 1.0 + 0.1 * np.abs(noise)
    elif kind in ("_mean", "bias"):
        value = 0.1 * noise
    elif noise.ndim == 1:  # the scale of a norm layer
        value = 1.0 + 0.1 * noise
    elif kind.endswith("pos_embed"):
        value = 0.02 * noise
    else:  # a convolution is [out, in, h, w], a linear layer [in, out]
        fan_in = math.prod(noise.shape[1:]) if noise.ndim == 4 else noise.shape[0]
        value = noise / np.sqrt(fan_in)
    return value.astype(np.float32)


def is_computed(name: str) -> bool:
    """Whether a state entry is a fixed sinusoid that the model computes itself."""
    return name.endswith(".pe")


def load_weights(layer: Any, seed: int) -> None:
    """Give every entry of ``layer.state_dict()`` its parity value (sinusoids keep theirs)."""
    state = layer.state_dict()
    drawn = {name: weight(name, value.shape, seed) for name, value in state.items() if not is_computed(name)}
    missing, unexpected = layer.set_state_dict({**state, **drawn})
    assert not missing, missing
    assert not unexpected, unexpected
