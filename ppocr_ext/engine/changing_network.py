"""Compile a network that is trained: for each evaluation, with its weights of that moment."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from paddle import nn

from ppocr_ext.checkpoint.weight_values import not_finite
from ppocr_ext.engine.compiled import CompiledNetwork
from ppocr_ext.engine.graph_maker import NetworkGraph, open_graph
from ppocr_ext.engine.request_graph import GraphWriter, ImageShape
from ppocr_ext.engine.runners import FLOAT32, NETWORK, PADDLE, open_runner
from ppocr_ext.messages import LOG
from ppocr_ext.modeling.head_request import HeadRequest


class ChangingNetwork(CompiledNetwork):
    """A network whose weights change while it is in train mode, with its signature; it is compiled in eval mode.

    A graph is traced when the first images come. After :meth:`train`, the next images have it written again with the
    weights of then, without a trace. It is compared with the network each time. Its files are removed as soon as it
    is open, and are never in the cache folder.

    Args:
        network: a ``BaseModel`` with weights.
        request: what is computed.
        name: of the network in messages.
    """

    def __init__(self, network: nn.Layer, request: HeadRequest, name: str) -> None:
        super().__init__(network, request, name, None, FLOAT32)
        self._writers: dict[ImageShape, GraphWriter] = {}
        self._paused = False  # until the next evaluation

    def train(self) -> None:
        """Forget the weights, and free what has been opened for them. The mode of the network does not change."""
        self._graphs.clear()
        if self._paused:
            self.engine, self._paused = PADDLE, False
        if self.engine == NETWORK:
            self._writers.clear()

    def _step_down(self, error: Exception) -> None:
        if not_finite(self._network.state_dict()):  # a rollback may follow
            LOG.warning(
                "%s has weights that are not finite; it is not compiled for this evaluation.", self._name
            )
            self.engine, self._paused = NETWORK, True
        else:
            super()._step_down(error)

    def _open(self, image_shape: ImageShape, width: int) -> NetworkGraph:
        shapes: list[tuple[int, ...]] = [(1, *image_shape[:2], width)]
        writer = self._writers.get(image_shape)
        if writer is None:
            LOG.info("compiling %s for images of height %d", self._name, image_shape[1])
            writer = GraphWriter(self._network, self._request, self._position, image_shape)
            if image_shape[2] is None:
                shapes.append((2, *image_shape[:2], max(8, width // 16 * 8)))
        with TemporaryDirectory(prefix="ppocr_ext-") as name:
            folder = Path(name)
            writer.write(folder)
            runner = open_runner(PADDLE, folder, threads=self._threads)
        graph = open_graph(runner, self._network, self._request, self._position, shapes)
        self._writers[image_shape] = writer
        return graph
