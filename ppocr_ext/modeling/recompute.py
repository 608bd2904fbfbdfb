"""Compute activations again in the backward pass instead of storing them (Chen et al., arXiv 1604.06174)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import paddle
from paddle import nn
from paddle.distributed.fleet.utils import recompute

BATCH_NORMS = (nn.BatchNorm1D, nn.BatchNorm2D, nn.BatchNorm3D, nn.SyncBatchNorm, nn.BatchNorm)


class Recomputable(nn.Layer):
    """Base of blocks that a network applies one after the other.

    Attributes:
        recomputes: in train mode, store only the inputs of the block for the backward pass.
    """

    recomputes = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of ``forward``."""
        if self.recomputes and self.training and paddle.is_grad_enabled():
            return _call_twice(self, super().__call__, args, kwargs)
        return super().__call__(*args, **kwargs)


def recompute_blocks(network: nn.Layer) -> list[Recomputable]:
    """Let the blocks of a network compute their activations again. If blocks are nested, only the outermost does so.

    On a CPU, outputs, gradients, running statistics and random numbers stay the same bit for bit. Mixed precision and
    GPUs are not tested.

    Returns:
        The blocks.
    """
    if isinstance(network, Recomputable):
        network.recomputes = True
        return [network]
    return [block for layer in network.children() for block in recompute_blocks(layer)]


def _call_twice(block: nn.Layer, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    trained = next((each for each in block.parameters() if not each.stop_gradient), None)
    if trained is None:
        return call(*args, **kwargs)
    generator = paddle.get_rng_state()
    is_again = False

    def compute(_: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal is_again
        with _as_before(block, generator) if is_again else nullcontext():
            is_again = True
            return call(*args, **kwargs)

    # Paddle restores mixed precision itself, but older versions do not restore random numbers on a CPU. It warns in
    # each step if no argument needs a gradient, and an image needs none; so a parameter is the first argument. Its
    # other form, `use_reentrant`, would give such a block no gradients at all.
    return recompute(compute, trained, *args, preserve_rng_state=False, use_reentrant=False, **kwargs)


@contextmanager
def _as_before(block: nn.Layer, generator: Any) -> Iterator[None]:
    """Inside this context, repeat the random numbers of the first pass, and keep BatchNorm's running statistics."""
    layers = [layer for layer in block.sublayers() if isinstance(layer, BATCH_NORMS)]
    momenta = [layer._momentum for layer in layers]
    now = paddle.get_rng_state()
    paddle.set_rng_state(generator)
    for layer in layers:
        layer._momentum = 1.0  # new = 1 · old + 0 · batch
    try:
        yield
    finally:
        paddle.set_rng_state(now)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer._momentum = momentum
