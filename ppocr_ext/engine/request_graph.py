"""Write what a network is asked for as a graph: images and NRTR's targets in, every output out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle
from paddle import Tensor, nn
from paddle.static import InputSpec

from ppocr_ext.engine.captured import captured
from ppocr_ext.engine.runners import GRAPH, STEM
from ppocr_ext.errors import ModelError
from ppocr_ext.modeling import BaseModel
from ppocr_ext.modeling.backbones.conv_parts import reparameterized
from ppocr_ext.modeling.head_request import BRANCH_LAYERS, BRANCHES, HeadRequest, understands_requests
from ppocr_ext.modeling.heads.multi_head import MultiHead
from ppocr_ext.modeling.heads.nrtr_head import Transformer

IMAGES, TARGET = "x", "target"  # names of the inputs; the first as in PaddleOCR's graphs
ImageShape = tuple[int, int, int | None]  # channels, height, and the width if there is only one


def inference_copy(network: nn.Layer, request: HeadRequest) -> nn.Layer:
    """Return a copy of a network in eval mode for one request, its parallel convolutions folded.

    Branches that the request leaves out are not in it. With probabilities, features that ``return_feats`` adds are
    left out too.

    Args:
        network: a ``BaseModel`` with weights. It does not change.
        request: what the copy is for.
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


def target_position(network: Any, request: HeadRequest) -> int | None:
    """Return where in the labels of a batch NRTR's target is; None if the request reads no labels.

    Raises:
        ModelError: the request cannot be compiled, or the network is not one of ours.
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


def labels_of(target: Any, position: int | None) -> list[Any] | None:
    """Return the labels of a batch with NRTR's ``target``, which ends with the longest line; None without one."""
    return None if position is None or target is None else [target] * (position + 1)


class _Traced(nn.Layer):
    """Return the outputs of a network as a flat list.

    Args:
        network: a ``BaseModel``.
        request: what it returns.
        position: see :func:`target_position`.
    """

    def __init__(self, network: nn.Layer, request: HeadRequest, position: int | None) -> None:
        super().__init__()
        self.network = inference_copy(network, request)
        self._request, self._position = request, position
        self.eval()

    def forward(self, images: Tensor, target: Tensor | None = None) -> list[Tensor]:
        """Map images [B, 3, H, W], and ids int64 [B, L] of NRTR, to the outputs."""
        outputs = self.network(images, labels_of(target, self._position), self._request)
        return paddle.utils.flatten(outputs)


def write_request_graph(
    network: nn.Layer, request: HeadRequest, position: int | None, image_shape: ImageShape, folder: Path
) -> None:
    """Write ``inference.json`` and ``inference.pdiparams`` for batches of any size.

    Paddle's generator is as it was afterwards.

    Args:
        network: a ``BaseModel`` with weights.
        request: what the graph returns; a tensor that the network returns twice is one output.
        position: see :func:`target_position`.
        image_shape: of the images; without a width for all widths.
        folder: an existing folder.

    Raises:
        ModelError: Paddle cannot compile it.
    """
    spec = [InputSpec([None, *image_shape], "float32", name=IMAGES)]
    if position is not None:
        spec.append(InputSpec([None, None], "int64", name=TARGET))

    def save() -> None:
        traced = _Traced(network, request, position)
        static = paddle.jit.to_static(traced, input_spec=spec, full_graph=True)
        paddle.jit.save(static, str(folder / STEM))

    generator = paddle.get_rng_state()
    try:
        captured(save, "The network cannot be compiled", "not_compiled")
    finally:
        paddle.set_rng_state(generator)
    if not (folder / GRAPH).is_file():
        raise ModelError(f"Paddle {paddle.__version__} writes no {GRAPH}.", code="needs_paddle_3")
