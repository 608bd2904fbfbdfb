"""Other forms of Paddle's operators on a CPU, which a layer can take in place of its own."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from numpy import ndarray
from paddle import Tensor, nn
from paddle.autograd import PyLayer

Replacement = tuple[nn.Layer, str, Any]
Form = Callable[[nn.Layer], Replacement | None]


def replacements(network: nn.Layer, forms: list[Form]) -> Iterator[Replacement]:
    """Yield (layer, name of an attribute, other value) of all layers that a form fits."""
    for layer in network.sublayers():
        for form in forms:
            found = form(layer)
            if found is not None:
                yield found


def _is_depthwise(layer: nn.Layer) -> bool:
    """True for a depthwise convolution with zeros around it that are given as numbers."""
    return (
        isinstance(layer, nn.Conv2D)
        and layer._groups == layer._in_channels == layer._out_channels > 1
        and layer.bias is None
        and isinstance(layer._padding, int)
        and list(layer._dilation) == [1, 1]
    )


class _Gradient(PyLayer):
    """A value with a gradient of its own with respect to one tensor."""

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, value: Callable[[], Tensor], gradient: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.gradient = gradient
        return value()

    @staticmethod
    def backward(ctx: Any, above: Tensor) -> Tensor:
        return ctx.gradient(above)


def _mirrored(layer: nn.Layer) -> Replacement | None:
    """Depthwise convolution whose input has a convolution with mirrored kernels as its gradient."""
    if not _is_depthwise(layer) or list(layer._stride) != [1, 1]:
        return None
    options = {"padding": layer._padding, "groups": layer._groups}

    def forward(images: Tensor) -> Tensor:
        kernels = layer.weight.detach()
        features = F.conv2d(images.detach(), layer.weight, **options)  # has the gradient of the kernels
        back = {**options, "padding": [size - 1 - layer._padding for size in layer._kernel_size]}
        zeros = partial(paddle.zeros_like, features.detach())
        return features + _Gradient.apply(
            images, zeros, lambda above: F.conv2d(above, kernels.flip([2, 3]), **back)
        )

    return layer, "forward", forward


def forms() -> dict[str, list[Form]]:
    """All forms by name; those that Numba compiles where it is installed."""
    found: dict[str, list[Form]] = {"depthwise convolution: mirrored kernels for the gradient": [_mirrored]}
    if importlib.util.find_spec("numba") is not None:
        fused: list[Form] = [_numba_depthwise, _numba_norm_gelu, _numba_gelu]
        found["Numba: depthwise convolution"] = [_numba_depthwise]
        found["Numba: depthwise convolution, GELU alone and after BatchNorm"] = fused
    return found


def _numba_depthwise(layer: nn.Layer) -> Replacement | None:
    if not _is_depthwise(layer):
        return None
    geometry = tuple(layer._stride), (layer._padding, layer._padding)
    return layer, "forward", lambda images: _NumbaDepthwise.apply(images, layer.weight, *geometry)


def _numba_norm_gelu(layer: nn.Layer) -> Replacement | None:
    if not isinstance(layer, nn.Sequential) or len(layer) != 3 or not isinstance(layer[1], nn.GELU):
        return None
    if not hasattr(layer[0], "bn"):
        return None
    first, _, last = layer
    return layer, "forward", lambda images: last(_NumbaNormGelu.of(first.bn, first.c(images)))


def _numba_gelu(layer: nn.Layer) -> Replacement | None:
    if isinstance(layer, nn.GELU):
        return layer, "forward", _NumbaGelu.apply
    return (layer, "act", _NumbaGelu.apply) if getattr(layer, "act", None) is F.gelu else None


class _NumbaGelu(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        y = paddle.empty_like(x)
        _share("gelu", x.size, _array(x).reshape(-1), _array(y).reshape(-1))
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensor()
        dx = paddle.empty_like(x)
        _share("gelu_gradient", x.size, *(_array(each).reshape(-1) for each in (x, dy, dx)))
        return dx


class _NumbaNormGelu(PyLayer):
    @classmethod
    def of(cls, norm: nn.BatchNorm2D, x: Tensor) -> Tensor:
        """BatchNorm in training, then GELU; the running statistics are updated."""
        moments = paddle.empty([3, x.shape[1]])
        y = cls.apply(x, norm.weight, norm.bias, norm._epsilon, moments)
        for running, new in ((norm._mean, moments[0]), (norm._variance, moments[1])):
            running.set_value(running * norm._momentum + new * (1.0 - norm._momentum))
        return y

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, eps: float, moments: Tensor) -> Tensor:
        y = paddle.empty_like(x)
        arrays = (_planes(x), _array(scale), _array(shift), eps, _planes(y), _array(moments))
        _share("batch_norm_gelu", x.shape[1], *arrays)
        ctx.save_for_backward(x, scale, shift, moments)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        x, scale, shift, moments = ctx.saved_tensor()
        dx, dparams = paddle.empty_like(x), paddle.empty([2, x.shape[1]])
        arrays = (_planes(x), _array(scale), _array(shift), _array(moments), _planes(dy), _planes(dx))
        _share("batch_norm_gelu_gradient", x.shape[1], *arrays, _array(dparams))
        return dx, dparams[0], dparams[1], None


class _NumbaDepthwise(PyLayer):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernels: Tensor, stride: tuple[int, int], padding: tuple[int, int]
    ) -> Tensor:
        axes = zip(x.shape[2:], kernels.shape[2:], stride, padding, strict=True)
        y = paddle.empty([*x.shape[:2], *((size + 2 * pad - of) // step + 1 for size, of, step, pad in axes)])
        _share("depthwise", x.shape[1], _array(x), _array(kernels)[:, 0], stride, padding, _array(y))
        ctx.save_for_backward(x, kernels)
        ctx.geometry = stride, padding
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        x, kernels = ctx.saved_tensor()
        dx, dkernels = paddle.empty_like(x), paddle.empty_like(kernels)
        arrays = (
            _array(x),
            _array(kernels)[:, 0],
            *ctx.geometry,
            _array(dy),
            _array(dx),
            _array(dkernels)[:, 0],
        )
        _share("depthwise_gradient", x.shape[1], *arrays)
        return dx, dkernels


def _array(x: Tensor) -> ndarray:
    """Return the memory of a tensor, not a copy."""
    return np.from_dlpack(x.detach() if x.is_contiguous() else x.detach().contiguous())


def _planes(x: Tensor) -> ndarray:
    """Return [B, C, H * W]."""
    return _array(x).reshape(x.shape[0], x.shape[1], -1)


def _share(name: str, count: int, *arguments: Any) -> None:
    """Call a loop for 0 to ``count`` in equal parts, one for each thread."""
    from benchmarks import numba_loops

    part, threads = getattr(numba_loops, name), int(os.environ.get("OMP_NUM_THREADS", "1"))
    cuts = [count * index // threads for index in range(threads + 1)]
    others = [
        _pool(threads).submit(part, begin, end, *arguments)
        for begin, end in zip(cuts[1:-1], cuts[2:], strict=True)
    ]
    part(cuts[0], cuts[1], *arguments)
    for other in others:
        other.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1)
