"""Run a network whose weights do not change as a compiled graph, in place of the network itself."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.engine.graph_cache import cached_folder, discard, graph_key, refusal_file
from ppocr_ext.engine.network_graph import NetworkGraph, probe, tolerance
from ppocr_ext.engine.predictor import BFLOAT16, FLOAT32, has_bfloat16, open_predictor, run_predictor
from ppocr_ext.engine.request_graph import (
    STEM,
    ImageShape,
    labels_of,
    target_position,
    write_request_graph,
)
from ppocr_ext.errors import ModelError
from ppocr_ext.messages import error_text
from ppocr_ext.modeling.head_request import HeadRequest

_LOG = logging.getLogger("ppocr_ext")
PADDLE, NETWORK = "paddle", "network"  # names of the engines
MOST_GRAPHS = 4  # of a network that needs one for each width
_REASON_LENGTH = 400  # a fix with a path fits


def compile_network(
    network: nn.Layer,
    request: HeadRequest,
    *,
    name: str = "the network",
    threads: int | None = None,
    dtype: str = FLOAT32,
) -> CompiledNetwork:
    """Return what computes ``request`` in place of ``network``: Paddle Inference with oneDNN, on the CPU.

    The graph is made when the first images of a height come, or by :meth:`CompiledNetwork.prepare`. It is kept in the
    cache folder, where the next process finds it.

    Args:
        network: with weights, which must not change, in eval mode.
        request: what is computed.
        name: of the network in messages.
        threads: of the computation; None: as many as the network itself has (``OMP_NUM_THREADS``).
        dtype: ``"float32"`` or ``"bfloat16"`` of products and convolutions. Without instructions for bfloat16, or if
            its outputs differ too much, float32 computes, and the log says so.
    """
    return CompiledNetwork(network, request, name, threads, dtype)


class CompiledNetwork:
    """A network and its compiled graphs, with the signature of the network; see :func:`compile_network`.

    Outputs equal the network's within :func:`tolerance`, which is checked on a few images when a graph is opened. Where
    something cannot be compiled, the network itself computes, and one line of the log has the reason. So it does for
    any other request, and in train mode.

    Attributes:
        engine: ``"paddle"``, or ``"network"`` once something could not be compiled.
        dtype: that it computes in.
    """

    def __init__(
        self, network: nn.Layer, request: HeadRequest, name: str, threads: int | None, dtype: str
    ) -> None:
        self.engine, self.dtype = PADDLE, dtype
        self._network, self._request, self._name = network, request, name
        self._threads = threads or int((os.environ.get("OMP_NUM_THREADS") or "1").partition(",")[0])
        self._graphs: dict[ImageShape, NetworkGraph] = {}
        self._one_width = False  # the network takes no other; each width has its graph
        self._position: int | None = None
        try:
            self._position = target_position(network, request)
            if paddle.get_device() != "cpu":
                raise ModelError(
                    f"this engine computes on a CPU, not on {paddle.get_device()}.", code="not_compiled"
                )
        except ModelError as error:
            self._give_up(error, logging.INFO)  # nothing has failed
        if self.dtype == BFLOAT16 and not has_bfloat16():
            lacking = "this processor has no instructions for bfloat16."
            self._step_down(ModelError(lacking, code="not_compiled"))

    @property
    def label(self) -> str:
        """Engine and dtype in a run's records: ``"paddle"`` (float32), ``"paddle bfloat16"``, ``"network"``."""
        return self.engine if self.dtype == FLOAT32 else f"{self.engine} {self.dtype}"

    def __call__(
        self, images: Tensor, data: Sequence[Tensor] | None = None, request: HeadRequest | None = None
    ) -> Any:
        """Return what the network returns, without gradients; see :class:`BaseModel`."""
        with paddle.no_grad():
            return self._outputs(images, data, request)

    def _outputs(self, images: Tensor, data: Sequence[Tensor] | None, request: HeadRequest | None) -> Any:
        asked = request or getattr(self._network, "eval_request", self._request)
        target = self._target(data)
        fits = (
            asked == self._request
            and not self._network.training
            and (target is None) == (self._position is None)
        )
        if self.engine == PADDLE and fits:
            try:
                return self._graph(images.shape[1:]).run(images.numpy(), target)
            except Exception as error:  # whatever Paddle raises
                outputs = self._network(images, data, request)  # it says what is wrong with the images
                self._step_down(error)
                return outputs
        return self._network(images, data, request)

    def eval(self) -> None:
        """Switch the network to eval mode, as the host's loop does."""
        self._network.eval()

    def train(self) -> None:
        """Do nothing: the weights do not change. The host's loop calls it after an evaluation."""

    def prepare(self, image_shape: Sequence[int]) -> None:
        """Make or open the graph for images [C, H, W], whose width may change later; nothing in train mode."""
        if self.engine == PADDLE and not self._network.training:
            try:
                self._graph(image_shape)
            except Exception as error:
                self._step_down(error)
                self.prepare(image_shape)

    def _target(self, data: Sequence[Tensor] | None) -> np.ndarray | None:
        """Return the ids up to the end of the longest line of a batch."""
        if self._position is None or data is None or len(data) < self._position + 2:
            return None
        longest = int(data[self._position + 1].max())
        return np.asarray(data[self._position][:, : longest + 2].numpy())

    def _graph(self, image_shape: Sequence[int]) -> NetworkGraph:
        """Return the graph for images [C, H, W]: of any width, or, if the network takes no other, of this one.

        Raises:
            ModelError: there would be too many graphs.
            Exception: whatever Paddle makes of a network that it cannot compile.
        """
        channels, height, width = (int(size) for size in image_shape)
        of_all, of_one = (channels, height, None), (channels, height, width)
        for shape in (of_all, of_one):
            if shape in self._graphs:
                return self._graphs[shape]
        if not self._one_width:
            try:
                return self._graphs.setdefault(of_all, self._open(of_all, width))
            except Exception as error:  # such as SVTRNet's, which takes images of one size
                if self.dtype == BFLOAT16 and isinstance(error, _UnlikeError):
                    raise
                _LOG.debug("%s at any width: %s", self._name, _reason(error))
        if len(self._graphs) >= MOST_GRAPHS:
            raise ModelError("it needs a graph for each width of the images.", code="not_compiled")
        graph = self._graphs.setdefault(of_one, self._open(of_one, width))
        self._one_width = True
        return graph

    def _open(self, image_shape: ImageShape, width: int) -> NetworkGraph:
        """Open a graph of the cache; write it if it is not there, or is not right.

        Raises:
            _UnlikeError: it is unlike the network, now or at an earlier start.
        """
        key = graph_key(self._network, self._request, image_shape)
        if (file := self._refusal(key)).exists():
            found = f"its graph computed other numbers in {self.dtype} at an earlier start. Fix: remove {file.parent}"
            raise _UnlikeError(found, code="not_compiled")
        write = partial(write_request_graph, self._network, self._request, self._position, image_shape)
        narrow = max(8, width // 16 * 8) if image_shape[2] is None else width
        try:
            return self._read(key, _refuse, image_shape, (width,))
        except FileNotFoundError:
            _LOG.info("compiling %s for images of height %d", self._name, image_shape[1])
        except Exception as error:
            if self.dtype == BFLOAT16 and isinstance(error, _UnlikeError):
                raise  # float32, which reads the same graph, tells whether that is right
            _LOG.info("compiling %s again: %s", self._name, _reason(error))
            discard(key)
        return self._read(key, write, image_shape, (width, narrow))

    def _read(self, key: str, write: Any, image_shape: ImageShape, widths: Sequence[int]) -> NetworkGraph:
        with cached_folder(key, write) as folder:
            files = (folder / f"{STEM}.json", folder / f"{STEM}.pdiparams")
            predictor = open_predictor(*files, threads=self._threads, dtype=self.dtype)
        graph: NetworkGraph | None = None
        for count, width in enumerate(widths, start=1):
            images, target = probe((count, *image_shape[:2], width), self._position)
            labels = labels_of(None if target is None else paddle.to_tensor(target), self._position)
            with paddle.no_grad():
                expected = self._network(paddle.to_tensor(images), labels, self._request)
            graph = graph or NetworkGraph(partial(run_predictor, predictor), expected)
            if not graph.is_like(images, target, expected, self.dtype):
                with suppress(OSError):  # there may be no such folder
                    self._refusal(key).touch()
                found = f"its graph computes other numbers for images {list(images.shape)}."
                raise _UnlikeError(found, code="not_compiled")
        assert graph is not None
        return graph

    def _refusal(self, key: str) -> Path:
        return refusal_file(key, self.dtype, tolerance(self.dtype))

    def _step_down(self, error: Exception) -> None:
        """Go on in float32; if that has failed, with the network itself."""
        if self.dtype == FLOAT32:
            self._give_up(error)
            return
        self.dtype, self._one_width = FLOAT32, False
        self._graphs.clear()
        _LOG.warning("%s computes in float32: %s", self._name, _reason(error))

    def _give_up(self, error: Exception, level: int = logging.WARNING) -> None:
        self.engine, self.dtype = NETWORK, FLOAT32
        self._graphs.clear()
        _LOG.log(level, "%s is not compiled, it runs as it is: %s", self._name, _reason(error))


class _UnlikeError(ModelError):
    """A graph is not near its network."""


def _reason(error: Exception) -> str:
    """Return a line: of Paddle's compiler, the line that names the error."""
    text = error_text(error)
    named = re.search(r"^\s*(\w+Error: .*)$", text, re.MULTILINE)
    return (named[1] if named else text.partition("\n")[0])[:_REASON_LENGTH]


def _refuse(folder: Path) -> None:
    raise FileNotFoundError(folder)
