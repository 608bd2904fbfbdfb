"""Run a network whose weights do not change as a compiled graph.

How a graph is made::

    CompiledNetwork        this file: check what can be checked, then open a graph and compare it
      ├─ cached_folder     this file: the folder of a digest; at most 2 GB in all
      ├─ write_graph       graph.py: trace the network for the request
      ├─ convert_graph     formats.py: for engines that read ONNX
      ├─ open_runner       runners.py: Paddle Inference, ONNX Runtime, OpenVINO
      └─ is_near           comparison.py: on drawn text, at two widths

What can fail:

=============================================  =========================================================
what fails                                     what computes then
=============================================  =========================================================
a package of a named engine is missing         nothing: it is an error
bfloat16 is missing (processor, ONNX Runtime)  the same engine in float32
the head, a GPU, train mode, another request   the network
the network takes images of one width only     a graph for each width, at most 4
a file of the cache folder is damaged          the same engine; the file is made again
a graph fails, or computes other numbers       the network
an engine fails on a batch                     the network, from this batch on
=============================================  =========================================================

One line of the log gives the reason why a network is not compiled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.config.global_keys import BFLOAT16, FLOAT32, NETWORK, ONNXRUNTIME, PADDLE
from ppocr_ext.errors import ModelError
from ppocr_ext.inference.comparison import is_near, logits_of, text_inputs
from ppocr_ext.inference.formats import convert_graph
from ppocr_ext.inference.graph import (
    IMAGES,
    TARGET,
    ImageShape,
    inference_copy,
    labels_of,
    pools_adaptively,
    target_position,
    without_features,
    write_graph,
)
from ppocr_ext.inference.runners import (
    ONNX,
    Runner,
    engine_of,
    has_bfloat16,
    open_runner,
    require_engine,
    usual_threads,
)
from ppocr_ext.io.atomic import require_no_link
from ppocr_ext.io.resources import cache_folder
from ppocr_ext.messages import LOG, error_text
from ppocr_ext.modeling.digests import code_digest, state_digest
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.modeling.heads.nrtr_head import START_ID

FORMAT = 1  # version of the graphs, a part of their key: a new one makes all graphs anew
LIMIT = 2 << 30  # bytes of all graphs together
_PART = ".part-"  # the names of folders that are being written or removed begin so
_STALE = 24 * 3600  # seconds after which the folder of a killed process is removed


def graph_key(network: nn.Layer, request: HeadRequest, image_shape: tuple[int | None, ...]) -> str:
    """Return a digest of everything a graph depends on: weights, buffers, layers with options and code, versions."""
    layers = [
        (name, type(layer), {key: value for key, value in vars(layer).items() if _is_option(key, value)})
        for name, layer in network.named_sublayers(include_self=True)
    ]
    options = {**vars(request), "branches": sorted(request.branches)}
    parts = [
        state_digest(network),
        dict(network.named_buffers()),  # the state lacks buffers that are not persistent
        code_digest(network),
        layers,
        options,
        image_shape,
        paddle.__version__,
        FORMAT,
    ]
    text = json.dumps(parts, sort_keys=True, skipkeys=True, default=_described)
    return hashlib.sha256(text.encode()).hexdigest()


def _is_option(name: str, value: Any) -> bool:
    """Return False for the parts of a layer, its mode, and the name that Paddle gives it."""
    return name not in ("training", "_full_name") and not isinstance(value, OrderedDict)


def _described(value: Any) -> Any:
    """Return a digest of an array, and the qualified name of a function or of an object's class."""
    if isinstance(value, paddle.Tensor | np.ndarray | np.generic):
        return [str(value.dtype), list(value.shape), hashlib.sha256(np.asarray(value).tobytes()).hexdigest()]
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _root() -> Path:
    # A link is refused, since the oldest folders in it are removed.
    return require_no_link(cache_folder("engines"))


def is_kept(key: str) -> bool:
    """Return True if the graph ``key`` is there and belongs to this user."""
    folder = _root() / key
    return folder.is_dir() and folder.lstat().st_uid == os.getuid()


@contextmanager
def cached_folder(key: str, write: Callable[[Path], None]) -> Iterator[Path]:
    """Yield the folder of the graph ``key`` in ``$PPOCR_EXT_CACHE/engines``. If it is new, ``write`` fills it first.

    Processes that need the same graph at the same time each write it, and the first one stays. Afterwards the oldest
    graphs are removed, so that the rest has at most ``LIMIT`` bytes. If the cache folder cannot be written to, the
    graph is removed at the end of this context. A graph of another user is not opened.
    """
    root = _root()
    folder = root / key
    if is_kept(key):
        with suppress(OSError):
            os.utime(folder)
        yield folder
        with suppress(OSError):  # the folders of another user cannot be removed
            _remove_oldest(root, folder)  # an ONNX file may have been added
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=_PART, dir=root))
    except OSError:
        part = Path(tempfile.mkdtemp())
    try:
        write(part)
        if part.parent == root:
            with suppress(OSError):  # another process has written it meanwhile
                part.replace(folder)
        yield part if part.is_dir() else folder
        if part.parent == root:
            _remove_oldest(root, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_oldest(root: Path, kept: Path) -> None:
    """Remove the folders that were not used for longest, until the rest has at most ``LIMIT`` bytes."""
    graphs, parts = [], []
    for folder in root.iterdir():
        with suppress(OSError):  # another process removes it
            used = folder.stat().st_mtime
            if not folder.name.startswith(_PART):
                graphs.append((used, sum(file.stat().st_size for file in folder.iterdir()), folder))
            else:
                parts.append((used, folder))
    # Not this machine's clock, since the folder may be on another one.
    newest = max([used for used, _, _ in graphs] + [used for used, _ in parts], default=0.0)
    for used, folder in parts:
        if used < newest - _STALE:
            shutil.rmtree(folder, ignore_errors=True)
    total = sum(size for _, size, _ in graphs)
    for _, size, folder in sorted(graphs):
        if total > LIMIT and folder != kept:
            discard(folder.name)
            total -= size


def discard(key: str) -> None:
    """Remove the graph ``key`` if it is there and may be removed.

    It is renamed first, so that no other process reads half of it.
    """
    folder = _root() / key
    if not folder.is_dir():
        return
    with suppress(OSError):
        gone = Path(tempfile.mkdtemp(prefix=_PART, dir=folder.parent))
        try:
            folder.replace(gone)  # an empty folder can be replaced
        finally:
            shutil.rmtree(gone, ignore_errors=True)


MAX_GRAPHS = 4  # limit for a network that needs a graph for each width
CHUNK_PIXELS = 4 * 48 * 320  # larger chunks are not faster and take more memory
_TARGET_LENGTH = 6  # ids of the target that a graph is compared with
_REASON_LENGTH = 400  # characters of a reason in the log, enough for a fix with a path


class Probe(NamedTuple):
    """Drawn text, ids of NRTR if the graph reads them, and the network's outputs for both."""

    images: np.ndarray
    target: np.ndarray | None
    expected: Any


class CompiledNetwork:
    """A network and its compiled graphs on the CPU, with the signature of the network.

    Outputs equal the network's within 1e-4 (in bfloat16: 5 %); probabilities come without the features that
    ``return_feats`` adds. Each graph is compared when it is opened. If an engine fails, the table above applies. The
    network itself computes other requests, and everything in train mode. A graph is made by :meth:`prepare`, or with
    the first images of a height. It is kept in the cache folder for the next process.

    Args:
        network: in eval mode, with weights that do not change.
        request: the outputs that are computed.
        name: the name of the network in messages.
        threads: the number of threads; None for as many as the network itself uses (``OMP_NUM_THREADS``).
        dtype: ``"float32"`` or ``"bfloat16"``, for products and convolutions. Without instructions for bfloat16,
            float32 is used, with a warning.
        engine: ``"paddle"`` (Paddle Inference with oneDNN), ``"onnxruntime"``, ``"openvino"``, or ``"auto"``; see
            :func:`ppocr_ext.inference.runners.engine_of`.

    Attributes:
        name: the name of the network in messages.
        engine: the engine that computes; ``"network"`` after a failure.
        dtype: the type in which it computes.
        asked: the requested type; :attr:`label` names a type only if another one than float32 was requested.

    Raises:
        MissingPackageError: a package of ``engine`` is not installed.
    """

    def __init__(
        self,
        network: nn.Layer,
        request: HeadRequest,
        *,
        name: str = "the network",
        threads: int | None = None,
        dtype: str = FLOAT32,
        engine: str = PADDLE,
    ) -> None:
        require_engine(engine)
        self.engine = engine_of(engine)
        self.dtype = self.asked = dtype
        self._network, self._request, self.name = network, request, name
        self._threads = threads or usual_threads()
        self._graphs: dict[ImageShape, _Graph] = {}
        self._position: int | None = None
        try:
            self._position = target_position(network, request)
            if paddle.get_device() != "cpu":
                raise ModelError(
                    f"this engine computes on a CPU, not on {paddle.get_device()}.", code="not_compiled"
                )
        except ModelError as error:
            self._give_up(error, logging.INFO)  # INFO, since no engine has failed: none can be used here
        if self.dtype == BFLOAT16 and (engine == ONNXRUNTIME or not has_bfloat16()):
            self.dtype = FLOAT32
            without = "ONNX Runtime" if engine == ONNXRUNTIME else "this processor"
            LOG.warning("%s computes in float32: %s has no bfloat16.", name, without)

    @property
    def label(self) -> str:
        """Engine and type in a run's records: ``"paddle"``, ``"openvino bfloat16"``, ``"network"``.

        The type is missing if float32 was requested.
        """
        return self.engine if self.asked == FLOAT32 else f"{self.engine} {self.dtype}"

    def __call__(
        self, images: Tensor, data: Sequence[Tensor] | None = None, request: HeadRequest | None = None
    ) -> Any:
        """Return the outputs of the network, without gradients; see :class:`BaseModel`."""
        needed = request or getattr(self._network, "eval_request", self._request)
        target = self._target(data)
        fits = needed == self._request and (target is None) == (self._position is None)
        with paddle.no_grad():
            if self.engine == NETWORK or self._network.training or not fits:
                return self._network(images, data, request)
            try:
                return self._graph(images.shape[1:]).run(images.numpy(), target)
            except Exception as error:  # Paddle raises any class
                outputs = self._network(images, data, request)  # raises a clear error for bad images
                self._give_up(error)
                return outputs

    def eval(self) -> None:
        """Switch the network to eval mode, as the host's loop does."""
        self._network.eval()

    def train(self) -> None:
        """Do nothing, since the weights do not change. The host's loop calls it after an evaluation."""

    def multiply_adds(self, image_shape: Sequence[int]) -> int:
        """Return the multiply-adds of the products and convolutions for an image [C, H, W]; 0 if it cannot compute."""
        counts: list[int] = []

        def count(layer: nn.Layer, inputs: Any, output: Tensor) -> None:
            outputs = layer.weight.shape[0 if isinstance(layer, nn.Conv2D) else 1]
            counts.append(output.size * layer.weight.size // outputs)

        hooks = [
            each.register_forward_post_hook(count)
            for each in self._network.sublayers()
            if isinstance(each, nn.Conv2D | nn.Linear)
        ]
        try:
            self._probe((1, *image_shape))
        except Exception as error:  # the libraries raise any class
            self._give_up(error)
        finally:
            for hook in hooks:
                hook.remove()
        return sum(counts)

    def prepare(self, image_shape: Sequence[int]) -> None:
        """Make or open the graph for images [C, H, W], whose width may change later; nothing in train mode."""
        if self.engine != NETWORK and not self._network.training:
            try:
                self._graph(image_shape)
            except Exception as error:  # the libraries raise any class
                self._give_up(error)

    def _give_up(self, error: Exception, level: int = logging.WARNING) -> None:
        self.engine, self.dtype = NETWORK, FLOAT32
        self._graphs.clear()
        LOG.log(level, "%s is not compiled, the network itself computes: %s", self.name, _first_line(error))

    def _target(self, data: Sequence[Tensor] | None) -> np.ndarray | None:
        """Return the ids up to the end of the longest text line of a batch."""
        if self._position is None or data is None or len(data) < self._position + 2:
            return None
        longest = int(data[self._position + 1].max())
        return np.asarray(data[self._position][:, : longest + 2].numpy())

    def _graph(self, image_shape: Sequence[int]) -> _Graph:
        """Return the graph for images [C, H, W]: for any width, or for this one if the network needs a fixed width.

        Raises:
            ModelError: there would be too many graphs, or a graph computes other numbers.
            Exception: any exception of Paddle, the converter or the engine, if the network cannot be compiled.
        """
        channels, height, width = (int(size) for size in image_shape)
        for shape in ((channels, height, None), (channels, height, width)):
            if shape in self._graphs:
                return self._graphs[shape]
        if len(self._graphs) >= MAX_GRAPHS and all(shape[2] for shape in self._graphs):
            raise ModelError("it needs a graph for each width of the images.", code="not_compiled")
        probes = [self._probe((1, channels, height, width))]
        any_width = not pools_adaptively(self._network, self._request, self.engine)
        if any_width:
            try:
                probes.append(self._probe((2, channels, height, max(8, width // 16 * 8))))
            except Exception:  # some networks take images of one size only, such as SVTRNet
                any_width = False
        of_graph = (channels, height, None if any_width else width)
        return self._graphs.setdefault(of_graph, self._open(of_graph, probes))

    def _probe(self, shape: tuple[int, ...]) -> Probe:
        """Return drawn text of a shape [B, C, H, W], and the network's outputs for it."""
        images, target = text_inputs(shape), None
        if self._position is not None:
            ids = np.arange(START_ID, START_ID + _TARGET_LENGTH, dtype=np.int64)
            target = np.tile(ids, (len(images), 1))
        labels = labels_of(None if target is None else paddle.to_tensor(target), self._position)
        with paddle.no_grad():
            expected = self._network(paddle.to_tensor(images), labels, self._request)
        return Probe(images, target, without_features(expected) if self._request.probabilities else expected)

    def _open(self, image_shape: ImageShape, probes: Sequence[Probe]) -> _Graph:
        """Open a graph of the cache, after writing it if it is missing or wrong."""

        def write(folder: Path) -> None:
            LOG.info("compiling %s for images of height %d", self.name, image_shape[1])
            copied = inference_copy(self._network, self._request)
            write_graph(copied, self._request, image_shape, folder, self._position)

        def read() -> _Graph:
            with cached_folder(key, write) as folder:
                if self.engine != PADDLE and not (folder / ONNX).exists():
                    convert_graph(folder)
                runner = open_runner(self.engine, folder, threads=self._threads, dtype=self.dtype)
            graph = _Graph(runner, probes[0].expected)
            for probe in probes:
                self._compare(graph, probe)
            return graph

        key = graph_key(self._network, self._request, image_shape)
        was_kept = is_kept(key)
        try:
            return read()
        except Exception as error:  # the libraries raise any class for damaged files
            discard(key)
            if not was_kept:
                raise
            LOG.info("compiling %s again: %s", self.name, _first_line(error))
        try:
            return read()
        except Exception:
            discard(key)
            raise

    def _compare(self, graph: _Graph, probe: Probe) -> None:
        """Compare a graph with the network.

        Raises:
            ModelError: it computes other numbers.
        """
        outputs = (graph.run(probe.images, probe.target), probe.expected)
        are_probabilities = self._request.probabilities and not self._request.as_dict
        for found, right in zip(*map(paddle.utils.flatten, outputs), strict=True):
            expected, values = right.numpy(), found.numpy()
            if are_probabilities:
                expected, values = logits_of(expected), logits_of(values)
            if not is_near(expected, values, self.dtype):
                raise ModelError(
                    f"its graph computes other numbers in {self.dtype} for images {list(probe.images.shape)}.",
                    code="not_compiled",
                )


class _Graph:
    """A graph and the structure of its outputs.

    Args:
        runner: the runner of the graph.
        outputs: the outputs of the network, with the same structure.
    """

    def __init__(self, runner: Runner, outputs: Any) -> None:
        self._run = runner
        first: dict[int, int] = {}  # a tensor that is returned twice is one output of the graph
        self._places = [first.setdefault(id(each), len(first)) for each in paddle.utils.flatten(outputs)]
        self._structure = paddle.utils.map_structure(lambda tensor: 0, outputs)

    def run(self, images: np.ndarray, target: np.ndarray | None) -> Any:
        """Return the outputs for images [B, C, H, W], which are computed in chunks to save memory."""
        size = max(1, CHUNK_PIXELS // (images.shape[2] * images.shape[3]))
        parts = []
        for start in range(0, len(images), size):
            chunk = slice(start, start + size)
            inputs = {IMAGES: images[chunk]} | ({} if target is None else {TARGET: target[chunk]})
            parts.append(self._run(inputs))
        tensors = [paddle.to_tensor(np.concatenate(pieces)) for pieces in zip(*parts, strict=True)]
        return paddle.utils.pack_sequence_as(self._structure, [tensors[place] for place in self._places])


def _first_line(error: Exception) -> str:
    """Return the first line of the message; for Paddle's compiler, the line that names the error."""
    text = error_text(error)
    named = re.search(r"^\s*(\w+Error: .*)$", text, re.MULTILINE)
    return (named[1] if named else text.partition("\n")[0])[:_REASON_LENGTH]
