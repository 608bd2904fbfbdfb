"""The graphs of one network and request: make or open one, and compare it with the network."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.engine.graph_cache import cached_folder, discard, graph_key
from ppocr_ext.engine.onnx_conversion import convert_graph
from ppocr_ext.engine.request_graph import IMAGES, TARGET, ImageShape, labels_of, write_request_graph
from ppocr_ext.engine.runners import BFLOAT16, FLOAT32, ONNX, PADDLE, Runner, open_runner
from ppocr_ext.errors import ModelError
from ppocr_ext.messages import LOG, error_text
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.modeling.heads.nrtr_head import START_ID

TOLERANCE = 1e-4  # of the largest absolute value of an output, if that is above 1
BFLOAT16_TOLERANCE = 0.05  # of the root mean square of an output, for that of the differences
CHUNK_PIXELS = 4 * 48 * 320  # larger chunks are not faster and take more memory
_PROBE_LENGTH = 6  # ids of a target
_REASON_LENGTH = 400  # a fix with a path fits


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


def _is_near(found: Tensor, right: Tensor, dtype: str) -> bool:
    """Compare outputs of the same shape; NaN is not near."""
    if dtype == BFLOAT16:
        return float((found - right).norm()) <= BFLOAT16_TOLERANCE * float(right.norm())
    return float((found - right).abs().max()) <= TOLERANCE * max(1.0, float(right.abs().max()))


def probe(shape: tuple[int, ...], position: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return noise and, if they are needed, ids to compare a graph with its network."""
    images = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    ids = np.arange(START_ID, START_ID + _PROBE_LENGTH, dtype=np.int64)
    return images, None if position is None else np.tile(ids, (shape[0], 1))


class GraphMaker:
    """Make and open graphs of a network.

    Args:
        network: with weights, which must not change, in eval mode.
        request: what is computed.
        position: see :func:`ppocr_ext.engine.request_graph.target_position`.
        name: of the network in messages.
        threads: of the computation.
    """

    def __init__(
        self, network: nn.Layer, request: HeadRequest, position: int | None, name: str, threads: int
    ) -> None:
        self.name, self.threads = name, threads
        self._network, self._request, self._position = network, request, position

    def open(self, image_shape: ImageShape, width: int, engine: str, dtype: str) -> NetworkGraph:
        """Open a graph of the cache; write it if it is not there, or is not right.

        Args:
            image_shape: without a width, of a graph for all widths.
            width: of the images that it is compared on.
            engine: what runs it.
            dtype: that it computes in.

        Raises:
            UnlikeError: it computes other numbers.
            Exception: whatever Paddle, the converter or the engine makes of a network that it cannot compile.
        """
        key, private = graph_key(self._network, self._request, image_shape), False
        narrow = max(8, width // 16 * 8) if image_shape[2] is None else width
        shapes = [(1, *image_shape[:2], width), (2, *image_shape[:2], narrow)]
        try:
            return self._read(key, _leave, shapes, engine, dtype)
        except FileNotFoundError:
            LOG.info("compiling %s for images of height %d", self.name, image_shape[1])
        except Exception as error:  # whatever the libraries make of damaged files
            LOG.info("compiling %s again: %s", self.name, first_line(error))
            private = not discard(key)
        write = partial(write_request_graph, self._network, self._request, self._position, image_shape)
        try:
            return self._read(key, write, shapes, engine, dtype, private=private)
        except Exception:
            discard(key)
            raise

    def _read(
        self,
        key: str,
        write: Callable[[Path], None],
        shapes: Sequence[tuple[int, ...]],
        engine: str,
        dtype: str,
        *,
        private: bool = False,
    ) -> NetworkGraph:
        """Open a graph and compare it with the network.

        Args:
            key: of the graph.
            write: writes it if it is not there.
            shapes: of the images that it is compared on.
            engine: see :meth:`open`.
            dtype: see :meth:`open`.
            private: see :func:`ppocr_ext.engine.graph_cache.cached_folder`.

        Raises:
            Exception: see :meth:`open`.
        """
        with cached_folder(key, write, private=private) as folder, ExitStack() as stack:
            if engine != PADDLE and not (folder / ONNX).exists():
                folder = _with_onnx(folder, stack)
            runner = open_runner(engine, folder, threads=self.threads, dtype=dtype)
        return open_graph(runner, self._network, self._request, self._position, shapes, dtype)


def first_line(error: Exception) -> str:
    """Return a line: of Paddle's compiler, the line that names the error."""
    text = error_text(error)
    named = re.search(r"^\s*(\w+Error: .*)$", text, re.MULTILINE)
    return (named[1] if named else text.partition("\n")[0])[:_REASON_LENGTH]


def _with_onnx(folder: Path, stack: ExitStack) -> Path:
    """Convert the graph of a folder; return where the ONNX file is: there, or in a folder that lives as ``stack``."""
    try:
        convert_graph(folder, folder / ONNX, folder.parent)
    except OSError:  # the folder is of another user
        own = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        convert_graph(folder, own / ONNX, own)
        return own
    return folder


def _leave(folder: Path) -> None:
    raise FileNotFoundError(folder)
