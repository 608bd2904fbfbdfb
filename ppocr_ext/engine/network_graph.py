"""A graph in place of its network: few images at a time, outputs of the same structure, and whether they are near."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ppocr_ext.engine.predictor import BFLOAT16, FLOAT32
from ppocr_ext.engine.request_graph import IMAGES, TARGET, labels_of
from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.modeling.heads.nrtr_head import START_ID

Runner = Callable[[Mapping[str, np.ndarray]], Sequence[np.ndarray]]  # inputs by name to the outputs in order
TOLERANCE = 1e-4  # of the largest absolute value of an output, if that is above 1
BFLOAT16_TOLERANCE = 0.05  # of the root mean square of an output, for that of the differences
CHUNK_PIXELS = 4 * 48 * 320  # more images at a time are no faster, and need more memory
_PROBE_LENGTH = 6  # ids of a target


def chunk_size(height: int, width: int) -> int:
    """Return how many images of this size are computed at a time."""
    return max(1, CHUNK_PIXELS // (height * width))


class NetworkGraph:
    """A graph and the structure of what it returns.

    Args:
        runner: of the graph, by whatever library.
        outputs: of the network, of the same structure.
    """

    def __init__(self, runner: Runner, outputs: Any) -> None:
        self._run = runner
        flat = paddle.utils.flatten(outputs)
        first: dict[int, int] = {}  # a tensor that is returned twice is one output of the graph
        self._places = [first.setdefault(id(tensor), len(first)) for tensor in flat]
        self._structure = paddle.utils.map_structure(lambda tensor: 0, outputs)

    def run(self, images: np.ndarray, target: np.ndarray | None) -> Any:
        """Return the outputs for images [B, C, H, W], a few of them at a time."""
        size = chunk_size(*images.shape[2:])
        parts = []
        for start in range(0, len(images), size):
            chunk = slice(start, start + size)
            inputs = {IMAGES: images[chunk]} | ({} if target is None else {TARGET: target[chunk]})
            parts.append(self._run(inputs))
        tensors = [paddle.to_tensor(np.concatenate(pieces)) for pieces in zip(*parts, strict=True)]
        return paddle.utils.pack_sequence_as(self._structure, [tensors[place] for place in self._places])

    def is_like(self, images: np.ndarray, target: np.ndarray | None, expected: Any, dtype: str) -> bool:
        """Return True if the outputs are near those of the network."""
        flat = paddle.utils.flatten(self.run(images, target)), paddle.utils.flatten(expected)
        return all(
            found.shape == right.shape and _is_near(found, right, dtype)
            for found, right in zip(*flat, strict=True)
        )


class UnlikeError(ModelError):
    """A graph is not near its network."""


def open_graph(
    runner: Runner,
    network: Any,
    request: HeadRequest,
    position: int | None,
    shapes: Sequence[tuple[int, ...]],
    dtype: str = FLOAT32,
) -> NetworkGraph:
    """Return a graph that is near its network.

    Args:
        runner: of the graph.
        network: in eval mode.
        request: what both return.
        position: see :func:`ppocr_ext.engine.request_graph.target_position`.
        shapes: of the images [B, C, H, W] that both are compared on.
        dtype: that the graph computes in.

    Raises:
        UnlikeError: the graph computes other numbers.
    """
    graph: NetworkGraph | None = None
    for shape in shapes:
        images, target = probe(shape, position)
        labels = labels_of(None if target is None else paddle.to_tensor(target), position)
        with paddle.no_grad():
            expected = network(paddle.to_tensor(images), labels, request)
        graph = graph or NetworkGraph(runner, expected)
        if not graph.is_like(images, target, expected, dtype):
            raise UnlikeError(
                f"its graph computes other numbers in {dtype} for images {list(shape)}.", code="not_compiled"
            )
    assert graph is not None
    return graph


def tolerance(dtype: str) -> float:
    """Return how far the outputs of a graph may be from its network's; see the constants."""
    return BFLOAT16_TOLERANCE if dtype == BFLOAT16 else TOLERANCE


def _is_near(found: Tensor, right: Tensor, dtype: str) -> bool:
    """Compare outputs of the same shape; NaN is not near."""
    if dtype == BFLOAT16:
        return float((found - right).norm()) <= tolerance(dtype) * float(right.norm())
    return float((found - right).abs().max()) <= tolerance(dtype) * max(1.0, float(right.abs().max()))


def probe(shape: tuple[int, ...], position: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return noise and, if they are needed, ids to compare a graph with its network."""
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    ids = np.arange(START_ID, START_ID + _PROBE_LENGTH, dtype=np.int64)
    return images, None if position is None else np.tile(ids, (shape[0], 1))
