"""Run a network whose weights do not change as a compiled graph, in place of the network itself.

How a graph comes about::

    compile_network ─ CompiledNetwork      this file: who computes a batch, and who does after a failure
      ├─ GraphMaker.open                   graph_maker.py: open a graph of the cache folder, or make it
      │    ├─ cached_folder                graph_cache.py: the folder of a digest; at most 2 GB
      │    ├─ write_request_graph          request_graph.py: trace the network for what is asked for
      │    ├─ convert_graph                onnx_conversion.py: for engines that read ONNX
      │    ├─ open_runner                  runners.py: Paddle Inference, ONNX Runtime, OpenVINO
      │    └─ open_graph                   graph_maker.py: compare with the network
      └─ engine_of                         runners.py: which engine ``"auto"`` is

What can fail:

=============================================  ======================================================
what fails                                     who computes then
=============================================  ======================================================
a package of a named engine is missing         nothing: it is an error
bfloat16 is missing (processor, ONNX Runtime)  the same engine in float32
a graph of any width fails, or differs         graphs of one width, at most 4
that of one width fails, or differs            the network
a file of the cache folder is damaged          the same engine, its file is made once more
an engine fails on a batch                     the network, from this batch on
train mode, another request, a GPU             the network
=============================================  ======================================================

One line of the log has the reason why a network is not compiled.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.engine.graph_maker import GraphMaker, NetworkGraph, first_line
from ppocr_ext.engine.request_graph import ImageShape, target_position
from ppocr_ext.engine.runners import (
    BFLOAT16,
    FLOAT32,
    NETWORK,
    ONNXRUNTIME,
    PADDLE,
    engine_of,
    has_bfloat16,
    require_engine,
)
from ppocr_ext.errors import ModelError
from ppocr_ext.messages import LOG
from ppocr_ext.modeling.head_request import HeadRequest

MOST_GRAPHS = 4  # of a network that needs one for each width


def compile_network(
    network: nn.Layer,
    request: HeadRequest,
    *,
    name: str = "the network",
    threads: int | None = None,
    dtype: str = FLOAT32,
    engine: str = PADDLE,
) -> CompiledNetwork:
    """Return what computes ``request`` in place of ``network``, on the CPU.

    The graph is made when the first images of a height come, or by :meth:`CompiledNetwork.prepare`. It is kept in the
    cache folder, where the next process finds it.

    Args:
        network: with weights, which must not change, in eval mode.
        request: what is computed.
        name: of the network in messages.
        threads: of the computation; None: as many as the network itself has (``OMP_NUM_THREADS``).
        dtype: ``"float32"`` or ``"bfloat16"`` of products and convolutions. Without instructions for bfloat16, float32
            is used, with a warning.
        engine: ``"paddle"`` (Paddle Inference with oneDNN), ``"onnxruntime"``, ``"openvino"``, or ``"auto"``; see
            :func:`ppocr_ext.engine.runners.engine_of`.

    Raises:
        MissingPackageError: a package of ``engine`` is not installed.
    """
    return CompiledNetwork(network, request, name, threads, dtype, engine)


class CompiledNetwork:
    """A network and its compiled graphs, with the signature of the network; see :func:`compile_network`.

    Outputs equal the network's within 1e-4 (in bfloat16: 5 %; see :mod:`ppocr_ext.engine.graph_maker`), which is
    checked on a few images when a graph is opened. The table above says what computes where an engine fails. The
    network itself also computes any other request, and in train mode.

    Attributes:
        engine: that computes; ``"network"`` once something could not be compiled.
        dtype: that it computes in.
        asked: the type that was asked for, perhaps of a run before; see :attr:`label`.
    """

    def __init__(
        self,
        network: nn.Layer,
        request: HeadRequest,
        name: str,
        threads: int | None,
        dtype: str,
        engine: str = PADDLE,
    ) -> None:
        require_engine(engine)
        self.engine, self.dtype, self.asked = engine_of(engine), dtype, dtype
        self._network, self._request, self._name = network, request, name
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
        if self.dtype == BFLOAT16 and (engine == ONNXRUNTIME or not has_bfloat16()):
            self.dtype = FLOAT32
            without = "ONNX Runtime" if engine == ONNXRUNTIME else "this processor"
            LOG.warning("%s computes in float32: %s has no bfloat16.", name, without)
        threads = threads or int((os.environ.get("OMP_NUM_THREADS") or "1").partition(",")[0])
        self._maker = GraphMaker(network, request, self._position, name, threads)

    @property
    def label(self) -> str:
        """Engine and dtype in a run's records: ``"paddle"``, ``"openvino bfloat16"``, ``"network"``.

        The type is left out if float32 was asked for.
        """
        return self.engine if self.asked == FLOAT32 else f"{self.engine} {self.dtype}"

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
        if self.engine != NETWORK and fits:
            try:
                return self._graph(images.shape[1:]).run(images.numpy(), target)
            except Exception as error:  # whatever Paddle raises
                outputs = self._network(images, data, request)  # it says what is wrong with the images
                self._give_up(error)
                return outputs
        return self._network(images, data, request)

    def eval(self) -> None:
        """Switch the network to eval mode, as the host's loop does."""
        self._network.eval()

    def train(self) -> None:
        """Do nothing: the weights do not change. The host's loop calls it after an evaluation."""

    def prepare(self, image_shape: Sequence[int]) -> None:
        """Make or open the graph for images [C, H, W], whose width may change later; nothing in train mode."""
        if self.engine != NETWORK and not self._network.training:
            try:
                self._graph(image_shape)
            except Exception as error:  # whatever Paddle or another library raises
                self._give_up(error)

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
                LOG.info(
                    "%s gets a graph for each width, one of any width fails: %s",
                    self._name,
                    first_line(error),
                )
        if len(self._graphs) >= MOST_GRAPHS:
            raise ModelError("it needs a graph for each width of the images.", code="not_compiled")
        graph = self._graphs.setdefault(of_one, self._open(of_one, width))
        self._one_width = True
        return graph

    def _open(self, image_shape: ImageShape, width: int) -> NetworkGraph:
        return self._maker.open(image_shape, width, self.engine, self.dtype)

    def _give_up(self, error: Exception, level: int = logging.WARNING) -> None:
        self.engine, self.dtype = NETWORK, FLOAT32
        self._graphs.clear()
        LOG.log(level, "%s is not compiled, it runs as it is: %s", self._name, first_line(error))
