"""Write a network as a graph for one request, which maps images and NRTR's targets to the outputs."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn
from paddle.static import InputSpec

from ppocr_ext.config.global_keys import PADDLE
from ppocr_ext.errors import ModelError
from ppocr_ext.inference.comparison import distance, text_inputs
from ppocr_ext.inference.runners import GRAPH, STEM, captured
from ppocr_ext.messages import LOG, error_text
from ppocr_ext.modeling import BaseModel
from ppocr_ext.modeling.backbones.conv_parts import reparameterized
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.modeling.head_request import BRANCH_LAYERS, BRANCHES, EVAL, HeadRequest, understands_requests
from ppocr_ext.modeling.heads.multi_head import MultiHead
from ppocr_ext.modeling.heads.nrtr_head import Transformer

IMAGES = "x"  # name of the input, as in PaddleOCR's graphs
TARGET = "target"
ImageShape = tuple[int, int, int | None]  # channels, height, and the width if there is only one
_SAME = 1e-5  # the largest difference of equal probabilities; a second softmax changes them more


def inference_copy(network: nn.Layer, request: HeadRequest) -> nn.Layer:
    """Return a copy of a network in eval mode for one request, with its parallel convolutions folded.

    It has only the branches of the request. For probabilities, it returns no features, whatever ``return_feats`` is.

    Args:
        network: a ``BaseModel`` with weights. It does not change.
        request: the outputs that are needed.
    """
    copied = reparameterized(network)
    for branch in BRANCHES - request.branches:
        for layer in BRANCH_LAYERS[branch]:
            if hasattr(copied.head, layer):
                delattr(copied.head, layer)
    for layer in copied.sublayers() if request.probabilities else ():
        if hasattr(layer, "return_feats"):
            layer.return_feats = False
    copied.eval()
    return copied


def without_features(outputs: Any) -> Any:
    """Return the outputs of a network for probabilities without features, as :func:`inference_copy` returns them."""
    if isinstance(outputs, dict):
        return {name: without_features(each) for name, each in outputs.items()}
    return outputs[-1] if isinstance(outputs, tuple) else outputs


def target_position(network: nn.Layer, request: HeadRequest) -> int | None:
    """Return the position of NRTR's target in the labels of a batch, or None if the request reads no labels.

    Raises:
        ModelError: the request cannot be compiled, or the network is not a :class:`BaseModel` with a head of ours.
    """
    head = getattr(network, "head", None)
    if not isinstance(network, BaseModel) or head is None or not understands_requests(head):
        raise ModelError(f"{type(network).__name__}: its head takes no requests.", code="not_compiled")
    branches = request.branches & head.branches if isinstance(head, MultiHead) else request.branches
    taught = isinstance(head, Transformer) or (isinstance(head, MultiHead) and "gtc" in branches)
    if taught and (request.decode or "gtc" not in request.branches):
        raise ModelError("NRTR decodes character by character.", code="not_compiled")
    if "sar" in branches and hasattr(head, "sar_head"):
        raise ModelError("the SAR branch reads the widths of the images.", code="not_compiled")
    return int(isinstance(head, MultiHead)) if taught else None


def pools_adaptively(network: nn.Layer, request: HeadRequest, engine: str) -> bool:
    """Return True if the backbone pools to a fixed number of frames; ONNX supports that only for one width."""
    frames = getattr(getattr(network, "backbone", None), "train_frames", None)
    return engine != PADDLE and request.for_training and isinstance(frames, int)


def labels_of(target: Any, position: int | None) -> list[Any] | None:
    """Return the labels of a batch with NRTR's ``target`` at ``position``; None without one of them."""
    return None if position is None or target is None else [target] * (position + 1)


class _Traced(nn.Layer):
    """Return the outputs of a network as a flat list.

    Args:
        network: made by :func:`inference_copy`.
        request: the outputs that it returns.
        position: see :func:`target_position`.
    """

    def __init__(self, network: nn.Layer, request: HeadRequest, position: int | None) -> None:
        super().__init__()
        self.network = network
        self._request, self._position = request, position
        self.eval()

    def forward(self, images: Tensor, target: Tensor | None = None) -> list[Tensor]:
        """Map images [B, 3, H, W], and ids int64 [B, L] of NRTR, to the outputs."""
        outputs = self.network(images, labels_of(target, self._position), self._request)
        return paddle.utils.flatten(outputs)


@contextmanager
def _home_for_paddle() -> Iterator[None]:
    """Inside this context, `~/.cache` can be written to: Paddle 3 keeps code there alone while it compiles."""
    folder = Path(os.path.expanduser("~/.cache/paddle/to_static_tmp"))  # noqa: PTH111 - a user may have no home
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        yield
        return
    before = os.environ.get("HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["HOME"] = home
        try:
            yield
        finally:
            del os.environ["HOME"]
            if before is not None:
                os.environ["HOME"] = before


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Keep signals until the end of this context: an exception of a handler inside Paddle's C++ aborts the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[int, Any] = {number: signal.getsignal(number) for number in signals}
    handled = [number for number, handler in before.items() if callable(handler)]
    for number in handled:
        signal.signal(number, lambda received, frame: waiting.append(received))
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])
        for number in waiting[:1]:
            signal.raise_signal(number)


def write_graph(
    copied: nn.Layer,
    request: HeadRequest,
    image_shape: ImageShape,
    folder: Path,
    position: int | None = None,
) -> None:
    """Write ``inference.json`` and ``inference.pdiparams`` for batches of any size.

    The state of Paddle's generator does not change.

    Args:
        copied: made by :func:`inference_copy`.
        request: the outputs of the graph; a tensor that the network returns twice is one output.
        image_shape: the shape of the images. A width of None stands for all widths.
        folder: an existing folder.
        position: see :func:`target_position`.

    Raises:
        ModelError: Paddle cannot compile it.
    """
    spec = [InputSpec([None, *image_shape], "float32", name=IMAGES)]
    if position is not None:
        spec.append(InputSpec([None, None], "int64", name=TARGET))

    def save() -> None:
        traced = _Traced(copied, request, position)
        static = paddle.jit.to_static(traced, input_spec=spec, full_graph=True)
        paddle.jit.save(static, str(folder / STEM))

    generator = paddle.get_rng_state()
    try:
        with _home_for_paddle(), _signals_wait():
            captured(save, "The network cannot be compiled", "not_compiled")
    finally:
        paddle.set_rng_state(generator)
    if not (folder / GRAPH).is_file():
        raise ModelError(
            f"Paddle {paddle.__version__} cannot write {GRAPH}, which the clients read. Fix: pip install "
            f"'paddlepaddle>=3' (the checkpoint stays the same).",
            code="needs_paddle_3",
        )


class Reader(NamedTuple):
    """The number of classes and of parameters of a graph that :func:`write_reader` wrote."""

    classes: int
    parameters: int


@paddle.no_grad()
def only_width(network: nn.Layer, image_shape: tuple[int, int, int]) -> int | None:
    """Return the width of ``image_shape`` if the network takes neither its half nor its double; else None.

    Args:
        network: as for :func:`write_reader`; it is left in eval mode.
        image_shape: [channels, height, width] of the images in evaluation.
    """
    channels, height, width = image_shape
    network.eval()
    for other in (2 * width, width // 2):
        try:
            network(paddle.to_tensor(text_inputs((1, channels, height, other))), None, EVAL)
            return None
        except Exception as error:
            reason = error_text(error)
    LOG.info("The network takes only images of width %d (%s).", width, reason)
    return width


def write_reader(
    network: nn.Layer, folder: Path, image_shape: tuple[int, int, int], width: int | None = None
) -> Reader:
    """Write the graph of a recogniser, which maps images [B, 3, H, W] to probabilities of CTC [B, T, C].

    The softmax is applied once, features are pooled as in evaluation, and branches that only guide the training are
    removed. The recogniser itself does not change.

    Args:
        network: a ``BaseModel`` with a CTC head, its weights loaded.
        folder: an existing folder.
        image_shape: [channels, height, width] of the images in evaluation.
        width: the only width that the graph takes; None for every width.

    Raises:
        ModelError: the network returns no CTC probabilities, or Paddle cannot compile it.
    """
    reader = inference_copy(network, EVAL)
    reader.return_all_feats = False
    channels, height, usual = image_shape
    classes = _check_output(reader, (1, channels, height, width or usual))
    write_graph(reader, EVAL, (channels, height, width), folder)
    # Counted in the file, since a network may have layers that only the training uses.
    weights = paddle.jit.load(str(folder / STEM)).state_dict().values()
    return Reader(classes, sum(int(np.prod(weight.shape)) for weight in weights))


@paddle.no_grad()
def _check_output(reader: nn.Layer, shape: tuple[int, ...]) -> int:
    """Read drawn text, and return the number of classes of the recogniser.

    Raises:
        ModelError: it does not return the softmax of its logits, or the logits are not finite.
    """
    with FeatureTap(reader) as tap:
        output = reader(paddle.to_tensor(text_inputs(shape)), None, EVAL)
    if not bool(paddle.isfinite(tap.logits).all()):
        raise ModelError(
            "The network returns numbers that are not finite, so its weights are damaged. Fix: export another "
            "checkpoint of the run.",
            code="not_finite",
        )
    expected = F.softmax(tap.logits, axis=-1).numpy()
    if not isinstance(output, Tensor) or distance(expected, output.numpy()) > _SAME:
        size = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ModelError(
            f"In evaluation, the network does not return the probabilities of CTC, [batch, frames, classes] "
            f"(found {size}). Fix: let its head apply the softmax once, and only in evaluation.",
            code="unsupported_output",
        )
    return int(output.shape[-1])
