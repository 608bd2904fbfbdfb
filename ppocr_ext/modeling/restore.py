"""Fill a network with the weights of an exported one: its convolutions, norms and linear layers, in their order.

An export folds parallel convolutions and BatchNorms into single convolutions. Each block that can be folded has
``fused()``, and beside it ``restore``, the way back: one branch gets the kernel, and the network computes the same in
eval mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor, nn

_NORMS = (nn.BatchNorm1D, nn.BatchNorm2D)
_CONVOLUTIONS = (nn.Conv1D, nn.Conv2D)
_KINDS = {
    "conv": _CONVOLUTIONS,
    "norm": _NORMS,
    "layer_norm": (nn.LayerNorm,),
    "linear": (nn.Linear,),
    "rnn": (nn.LSTM,),
}


class Norm(NamedTuple):
    """A BatchNorm, float32 [C] each."""

    factor: np.ndarray
    shift: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


@dataclass(eq=False)
class Unit:
    """A layer with weights in a graph; see :func:`ppocr_ext.inference.graph_units.units_of`.

    Attributes:
        kind: a key of ``_KINDS``, or ``"affine"``: one factor and one shift for all channels.
        name: the name of its first array in the file.
        kernel: of a convolution [O, I, kH, kW] or a linear layer [I, O]; the factor of a norm or an affine.
        bias: [O]; None without one.
        norm: the BatchNorm behind a convolution, or the only content of a BatchNorm; None without one.
        affine: factor and shift of all channels behind a convolution; None without them.
        arrays: of an LSTM, for each layer and direction: both matrices, then both biases.
    """

    kind: str
    name: str
    kernel: np.ndarray
    bias: np.ndarray | None = None
    norm: Norm | None = None
    affine: tuple[np.ndarray, np.ndarray] | None = None
    arrays: list[np.ndarray] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.kind} {list(self.kernel.shape)} ({self.name})"


class Match(NamedTuple):
    """The layers of a network with the units of a graph.

    Attributes:
        pairs: name, layer and unit, in the order of the data. A BatchNorm behind a convolution has the same unit.
        problem: the first layer or unit that does not fit; empty if all fit.
    """

    pairs: list[tuple[str, nn.Layer, Unit]]
    problem: str = ""


@paddle.no_grad()
def match_units(network: nn.Layer, units: Iterable[Unit], image_shape: tuple[int, int, int]) -> Match:
    """Return the unit of each layer; nothing is filled.

    Args:
        network: is called in eval mode, and stays in it.
        units: of an exported network, in the order of its data.
        image_shape: [C, H, W] of an image that the network can read.
    """
    left = iter(units)
    pairs: list[tuple[str, nn.Layer, Unit]] = []
    pending: Unit | None = None  # of a convolution whose BatchNorm comes next
    for name, layer in _executed(network, image_shape):
        if isinstance(layer, _NORMS) and pending is not None:
            unit, pending = pending, None
        else:
            found = next(left, None)
            if found is None or not _fits(layer, found):
                return Match(pairs, f"{name}: expected {_described(layer)}, found {found or 'nothing more'}")
            unit = found
            if isinstance(layer, _CONVOLUTIONS) and (layer.bias is None or unit.norm is not None):
                pending = unit
        pairs.append((name, layer, unit))
    found = next(left, None)
    return Match(pairs, "" if found is None else f"the network has no layer for {found}")


@paddle.no_grad()
def fill(pairs: Iterable[tuple[str, nn.Layer, Unit]]) -> list[str]:
    """Fill the layers of a complete :class:`Match`; the network then computes in eval mode what the graph computes.

    Returns:
        Names of the entries of its state that were filled. Others, such as those of branches that only guide the
        training, keep their values.
    """
    filled = []
    for name, layer, unit in pairs:
        _put(layer, unit)
        filled += [f"{name}.{each}" for each in layer.state_dict()]
    return list(dict.fromkeys(filled))


def _executed(network: nn.Layer, image_shape: tuple[int, int, int]) -> list[tuple[str, nn.Layer]]:
    """Return the layers with weights that the network calls in eval mode, by name, in the order of the calls."""
    order: list[tuple[str, nn.Layer]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, _, name=name: order.append((name, layer)))
        for name, layer in _leaves(network, "")
    ]
    network.eval()
    network(paddle.zeros([1, *image_shape]))
    for hook in hooks:
        hook.remove()
    return order


def _leaves(layer: nn.Layer, prefix: str) -> Iterator[tuple[str, nn.Layer]]:
    """Yield the layers that are restored as a whole, by name."""
    for name, child in layer.named_children():
        if hasattr(child, "restore") or not list(child.children()) or isinstance(child, nn.LSTM):
            if child.parameters():
                yield f"{prefix}{name}", child
            # the activation of a folded block may have an affine of its own, which the graph keeps
            child = getattr(child, "act", None)
            name = f"{name}.act"
        if isinstance(child, nn.Layer):
            yield from _leaves(child, f"{prefix}{name}.")


def _kind_of(layer: Any) -> str:
    if hasattr(layer, "restore"):
        return str(layer.unit_kind)
    return next(
        (kind for kind, classes in _KINDS.items() if isinstance(layer, classes)), type(layer).__name__
    )


def _kernel_of(layer: Any) -> Tensor | None:
    return getattr(getattr(layer, "main_conv", layer), "weight", None)


def _described(layer: nn.Layer) -> str:
    kernel = _kernel_of(layer)
    return f"{_kind_of(layer)}{'' if kernel is None else f' {list(kernel.shape)}'}"


def _fits(layer: nn.Layer, unit: Unit) -> bool:
    if _kind_of(layer) != unit.kind or (unit.affine is not None and not hasattr(layer, "lab")):
        return False
    kernel = _kernel_of(layer)
    return kernel is None or unit.kernel.size == kernel.size


def _put(layer: Any, unit: Unit) -> None:
    if hasattr(layer, "restore"):
        layer.restore(unit)
    elif isinstance(layer, _NORMS):
        put_norm(layer, unit.norm or identity_norm(layer, unit.bias))
    elif unit.kind == "rnn":
        for parameter, array in zip(layer.parameters(), unit.arrays, strict=True):
            put(parameter, array)
    else:
        put(layer.weight, unit.kernel)
        if layer.bias is not None:
            put(layer.bias, np.zeros(layer.bias.shape) if unit.bias is None else unit.bias)


def put(parameter: Tensor, array: Any) -> None:
    """Assign an array of the same size."""
    parameter.set_value(np.asarray(array, np.float32).reshape(parameter.shape))


def put_norm(norm: nn.Layer, values: Any) -> None:
    """Fill a BatchNorm with a :class:`Norm`."""
    for tensor, value in zip((norm.weight, norm.bias, norm._mean, norm._variance), values, strict=True):
        put(tensor, value)


def identity_norm(norm: nn.Layer, bias: Any = None) -> Norm:
    """Return the values with which a BatchNorm adds only ``bias`` [C] in eval mode."""
    one = np.ones(norm.weight.shape, np.float32)
    return Norm(one, 0 * one if bias is None else bias, 0 * one, one - np.float32(norm._epsilon))


def zero_norm(norm: nn.Layer) -> Norm:
    """Return the values with which a BatchNorm returns 0 in eval mode."""
    one = np.ones(norm.weight.shape, np.float32)
    return Norm(0 * one, 0 * one, 0 * one, one)
