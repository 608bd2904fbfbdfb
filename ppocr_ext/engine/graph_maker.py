"""The graphs of one network and request: make or open one, compare it with the network, remember a refusal."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.engine.graph_cache import cached_folder, discard, graph_key, note_file
from ppocr_ext.engine.onnx_conversion import UnconvertibleError, convert_graph
from ppocr_ext.engine.request_graph import IMAGES, TARGET, ImageShape, labels_of, write_request_graph
from ppocr_ext.engine.runners import BFLOAT16, FLOAT32, ONNX, PADDLE, Runner, open_runner, other_engines
from ppocr_ext.errors import ModelError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.limits import read_text
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


class RefusedError(ModelError):
    """An engine cannot compute a graph in a type; another engine, or float32, may."""


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
        self._keys: dict[ImageShape, str] = {}
        self.name, self.threads = name, threads
        self._network, self._request, self._position = network, request, position

    def key(self, image_shape: ImageShape) -> str:
        """Return the digest of the graph for images of a shape; see :func:`graph_key`."""
        if image_shape not in self._keys:
            self._keys[image_shape] = graph_key(self._network, self._request, image_shape)
        return self._keys[image_shape]

    def probe(self, count: int, image_shape: ImageShape, width: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return images [count, C, H, width] of noise and, if they are needed, ids."""
        return probe((count, *image_shape[:2], width), self._position)

    def open(self, image_shape: ImageShape, width: int, engine: str, dtype: str) -> NetworkGraph:
        """Open a graph of the cache; write it if it is not there, or is not right.

        Args:
            image_shape: without a width, of a graph for all widths.
            width: of the images that it is compared on.
            engine: what runs it.
            dtype: that it computes in.

        Raises:
            RefusedError: this engine cannot compute it in this type, as was found now or at an earlier start.
            Exception: whatever Paddle makes of a network that it cannot compile.
        """
        key = self.key(image_shape)
        file, found = self._refusal(key, engine, dtype), ""
        with suppress(OSError, ValueError):  # there is none
            found = read_text(file)
        if found:
            others = engine != PADDLE or dtype == BFLOAT16  # may compute it; else a graph of one width may
            raise (RefusedError if others else ModelError)(
                f"{found} (at an earlier start). Fix: remove {file.parent}", code="not_compiled"
            )
        write = partial(write_request_graph, self._network, self._request, self._position, image_shape)
        narrow, private = max(8, width // 16 * 8) if image_shape[2] is None else width, False
        try:
            return self._read(key, None, image_shape, (width, narrow), engine, dtype)
        except FileNotFoundError:
            LOG.info("compiling %s for images of height %d", self.name, image_shape[1])
        except RefusedError:  # in bfloat16, float32, which reads the same graph, tells whether that is right
            raise
        except Exception as error:
            LOG.info("compiling %s again: %s", self.name, first_line(error))
            private = not discard(key, None if engine == PADDLE else ONNX)  # Paddle's may be right
        return self._read(key, write, image_shape, (width, narrow), engine, dtype, private=private)

    def _read(
        self,
        key: str,
        write: Callable[[Path], None] | None,
        image_shape: ImageShape,
        widths: Sequence[int],
        engine: str,
        dtype: str,
        *,
        private: bool = False,
    ) -> NetworkGraph:
        """Open a graph and compare it with the network; one that is kept, on images of one width only.

        Args:
            key: of the graph.
            write: writes it; None: only open it.
            image_shape: see :meth:`open`.
            widths: of the images that it is compared on.
            engine: see :meth:`open`.
            dtype: see :meth:`open`.
            private: see :func:`ppocr_ext.engine.graph_cache.cached_folder`.
        """
        refuse = partial(self._refuse, key, engine, dtype)
        with cached_folder(key, write or _leave, private=private) as folder, ExitStack() as stack:
            kept = write is None and (engine == PADDLE or (folder / ONNX).exists())
            try:
                if engine != PADDLE and not kept:
                    folder = _with_onnx(folder, stack)
                runner = open_runner(engine, folder, threads=self.threads, dtype=dtype)
            except UnconvertibleError as error:
                refuse(first_line(error), True)
            except Exception as error:  # whatever the library makes of the file; it may pass
                broken = not isinstance(error, ImportError)  # else the file may be right
                if engine == PADDLE or (kept and broken):
                    raise
                if broken:
                    with suppress(OSError):  # the folder is of another user
                        (folder / ONNX).unlink(missing_ok=True)
                raise RefusedError(first_line(error), code="not_compiled") from error
        shapes = [(count, *image_shape[:2], width) for count, width in enumerate(widths, start=1)]
        try:
            return open_graph(
                runner, self._network, self._request, self._position, shapes[:1] if kept else shapes, dtype
            )
        except UnlikeError as error:
            if kept and dtype != BFLOAT16:  # it is made again
                raise
            refuse(str(error), dtype == BFLOAT16 or engine != PADDLE)

    def _refuse(self, key: str, engine: str, dtype: str, found: str, final: bool) -> NoReturn:
        """Keep that a graph is not right, and raise that; unless it is final, a graph of one width may be."""
        file = self._refusal(key, engine, dtype)
        if file.parent.is_dir():
            with suppress(OSError):
                write_text(file, found)
        raise (RefusedError if final else ModelError)(found, code="not_compiled")

    def refuses(self, image_shape: ImageShape, engine: str, dtype: str) -> bool:
        """Return True if it is remembered that an engine cannot compute the graph in a type."""
        return self._refusal(self.key(image_shape), engine, dtype).exists()

    def _refusal(self, key: str, engine: str, dtype: str) -> Path:
        version = other_engines(dtype).get(engine)
        return note_file(key, f"refused-{engine}-{dtype}", tolerance(dtype), version)


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
