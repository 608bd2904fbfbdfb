"""Fill a network with the weights of an exported one: its convolutions, norms and linear layers, in their order.

An export folds parallel convolutions and BatchNorms into single convolutions, so the network has ``fused: true``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.modeling.backbones.pplcnet import LearnableAffine

_KINDS = {
    "conv": (nn.Conv1D, nn.Conv2D),
    "norm": (nn.BatchNorm1D, nn.BatchNorm2D),
    "layer_norm": (nn.LayerNorm,),
    "linear": (nn.Linear,),
    "affine": (LearnableAffine,),
    "rnn": (nn.LSTM,),
}
_EPSILON = 1e-5  # of all BatchNorms of PaddleOCR's networks


class Norm(NamedTuple):
    """A BatchNorm, float32 [C] each."""

    factor: np.ndarray
    shift: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


@dataclass(eq=False)
class Unit:
    """A layer with weights in a graph; see :func:`ppocr_ext.inference.graph_units.read_units`.

    Attributes:
        kind: a key of ``_KINDS``. An affine has one factor and one shift for all channels.
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
        pairs: name, layer and unit, in the order of the data; a BatchNorm behind a convolution has a unit of its own.
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
    norm: Unit | None = None  # that of the convolution before
    order = _executed(network, image_shape)
    for (name, layer), (_, after) in zip(order, [*order[1:], ("", None)], strict=True):
        if norm is not None:
            unit, norm = norm, None
        else:
            found = next(left, None)
            if found is None or not _fits(layer, found):
                shape = [] if isinstance(layer, nn.LSTM) else list(_kernel_of(layer).shape)
                problem = f"{name}: expected {_kind_of(layer)} {shape}, found {found or 'nothing more'}"
                return Match(pairs, problem)
            unit = found
            if unit.kind == "conv" and _kind_of(after) == "norm" and unit.affine is None:
                unit, norm = _with_norm(unit)
            elif unit.kind == "conv":
                unit = _folded(unit)
                if layer.bias is None:
                    return Match(pairs, f"{name}: it has no bias, but {found} has one")
        pairs.append((name, layer, unit))
    found = next(left, None)
    return Match(pairs, "" if found is None else f"the network has no layer for {found}")


def _with_norm(unit: Unit) -> tuple[Unit, Unit]:
    """Return a convolution without a bias, and its BatchNorm; one that was folded into it only adds the bias."""
    one = np.ones(len(unit.kernel), np.float32)
    norm = unit.norm or Norm(one, 0 * one, 0 * one, one - np.float32(_EPSILON))
    norm = norm if unit.bias is None else norm._replace(mean=norm.mean - unit.bias)
    return Unit("conv", unit.name, unit.kernel), Unit("norm", unit.name, one, norm=norm)


def _folded(unit: Unit) -> Unit:
    """Return a convolution with its BatchNorm and affine folded in."""
    kernel, bias = unit.kernel, np.zeros(len(unit.kernel)) if unit.bias is None else unit.bias
    if unit.norm is not None:
        factor = unit.norm.factor / np.sqrt(unit.norm.variance + _EPSILON)
        kernel = kernel * factor.reshape([-1, *[1] * (kernel.ndim - 1)])
        bias = unit.norm.shift + (bias - unit.norm.mean) * factor
    if unit.affine is not None:
        factor, shift = unit.affine
        kernel, bias = kernel * factor, bias * factor + shift
    return Unit("conv", unit.name, kernel, bias)


@paddle.no_grad()
def fill(pairs: Iterable[tuple[str, nn.Layer, Unit]]) -> list[str]:
    """Fill the layers of a complete :class:`Match`; the network then computes in eval mode what the graph computes.

    Returns:
        Names of the entries of its state that were filled. Others, such as those of branches that only guide the
        training, keep their values.
    """
    filled = []
    for name, layer, unit in pairs:
        for tensor, value in _values(layer, unit):
            tensor.set_value(np.asarray(value, np.float32).reshape(tensor.shape))
        filled += [f"{name}.{each}" for each in layer.state_dict()]
    return filled


def _values(layer: Any, unit: Unit) -> Iterable[tuple[Tensor, Any]]:
    """Return the tensors of a layer with their values."""
    if unit.norm is not None:
        return zip((layer.weight, layer.bias, layer._mean, layer._variance), unit.norm, strict=True)
    if unit.kind == "rnn":
        return zip(layer.parameters(), unit.arrays, strict=True)
    pairs = [(_kernel_of(layer), unit.kernel)]
    if layer.bias is not None:
        pairs.append((layer.bias, np.zeros(layer.bias.shape) if unit.bias is None else unit.bias))
    return pairs


def _executed(network: nn.Layer, image_shape: tuple[int, int, int]) -> list[tuple[str, nn.Layer]]:
    """Return the layers with weights that the network calls in eval mode, by name, in the order of the calls."""
    order: list[tuple[str, nn.Layer]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda layer, _, name=name: order.append((name, layer)))
        for name, layer in network.named_sublayers()
        if _kind_of(layer) is not None
    ]
    network.eval()
    network(paddle.zeros([1, *image_shape]))
    for hook in hooks:
        hook.remove()
    return order


def _kind_of(layer: nn.Layer | None) -> str | None:
    return next((kind for kind, classes in _KINDS.items() if isinstance(layer, classes)), None)


def _kernel_of(layer: Any) -> Tensor:
    return layer.scale if isinstance(layer, LearnableAffine) else layer.weight


def _fits(layer: Any, unit: Unit) -> bool:
    if _kind_of(layer) != unit.kind:
        return False
    if unit.kind == "rnn":
        return [array.size for array in unit.arrays] == [each.size for each in layer.parameters()]
    # a 1-D convolution is one of images of height 1
    theirs, ours = (
        [size for size in shape if size != 1] for shape in (unit.kernel.shape, _kernel_of(layer).shape)
    )
    return theirs == ours and (layer.bias is not None or unit.bias is None or unit.kind == "conv")
