"""The arithmetic limit of a network: its multiply-adds, and how fast this machine does them.

A multiply-add is a product and a sum: two floating-point operations. Only convolutions, linear layers and the products
of attention count: everything else is at most a few per cent of the arithmetic.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import paddle
from paddle import Tensor, nn

from benchmarks.step_data import batch_of_run, config_of
from ppocr_ext.inference.graph import inference_copy
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model
from ppocr_ext.run.context import tune_cpu
from ppocr_ext.run.freezing import restrict_outputs

OPERATIONS = 2  # of a multiply-add
BACKWARD = 2  # times the products of a forward pass: gradients of the inputs, and of the weights
_SIZE = (
    1024  # of the square matrices: their product takes only milliseconds, so that few rounds are disturbed
)
_MOMENTS = 2  # of AdamW, for each trained weight
_FLOAT32 = 4  # bytes
_CONVOLUTIONS, _TRANSPOSED = (nn.Conv1D, nn.Conv2D), (nn.Conv1DTranspose, nn.Conv2DTranspose)


def measure(folder: str) -> dict[str, Any]:
    """Count the arithmetic of one image of the batch of :mod:`benchmarks.step_data`, and time products of matrices.

    Returns:
        ``teacher`` and ``student``: multiply-adds of one image in a forward pass with all that the losses read.
        ``reading``: the student with only its CTC branch, folded as it is compiled. ``speed``: floating-point
        operations a second. ``weights``: bytes of all weights, and of gradients and moments of the trained ones.
    """
    tune_cpu()
    config = config_of(Path(folder))
    images, *labels = [each[:1] for each in batch_of_run(Path(folder))]
    paddle.seed(0)
    model = build_model(config.at("Architecture").thaw())
    reads = build_loss(config.at("Loss").thaw()).required_outputs()
    model = restrict_outputs(model, reads, config)
    model.train()
    limits: dict[str, Any] = {}
    for name, request in model.train_requests.items():
        network = model.models[name]
        limits[name.lower()] = multiply_adds([network], partial(network, images, labels, request))
    request = model.Student.eval_request
    reader = inference_copy(model.Student, request)
    limits["reading"] = multiply_adds([reader], partial(reader, images, labels, request))
    trained = sum(each.size for each in model.parameters() if not each.stop_gradient)
    weights = sum(each.size for each in model.state_dict().values())
    limits["weights"] = _FLOAT32 * (weights + (1 + _MOMENTS) * trained)
    return {**limits, "speed": product_speed()}


def multiply_adds(networks: Iterable[nn.Layer], run: Callable[[], Any]) -> int:
    """Count the multiply-adds of ``networks`` while ``run`` calls them, and of all calls of Paddle's ``matmul``."""
    counts = [0]

    def of_layer(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        # weights [outputs, inputs / groups, …]; transposed: [inputs, …]
        per_element = math.prod(layer.weight.shape[1:])
        if isinstance(layer, nn.Linear):
            per_element = layer.weight.shape[0]
        counts[0] += per_element * (inputs[0] if isinstance(layer, _TRANSPOSED) else output).size

    types = (*_CONVOLUTIONS, *_TRANSPOSED, nn.Linear)
    layers = {id(each): each for network in networks for each in network.sublayers(include_self=True)}
    hooks = [
        layer.register_forward_post_hook(of_layer) for layer in layers.values() if isinstance(layer, types)
    ]
    try:
        with paddle.no_grad(), _counted_products(counts):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return counts[0]


@contextmanager
def _counted_products(counts: list[int]) -> Iterator[None]:
    """Add the multiply-adds of ``paddle.matmul`` to ``counts[0]``; attention calls it, layers do not."""
    matmul = paddle.matmul

    def product(x: Tensor, y: Tensor, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
        output = matmul(x, y, transpose_x, transpose_y)
        counts[0] += output.size * x.shape[-2 if transpose_x else -1]
        return output

    paddle.matmul = product
    try:
        yield
    finally:
        paddle.matmul = matmul


def product_speed(size: int = _SIZE, rounds: int = 60) -> float:
    """Return the floating-point operations a second of float32 products of square matrices, in the best round."""
    one, other = (paddle.uniform([size, size]) for _ in range(2))
    best = math.inf
    for _ in range(rounds):
        began = time.perf_counter()
        paddle.matmul(one, other)
        if paddle.is_compiled_with_cuda():
            paddle.device.synchronize()
        best = min(best, time.perf_counter() - began)
    return OPERATIONS * size**3 / best
