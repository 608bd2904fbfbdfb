"""Write the graph of a recogniser for Paddle Inference: images in, CTC probabilities out."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn
from paddle.static import InputSpec

from ppocr_ext.engine.captured import captured
from ppocr_ext.engine.request_graph import IMAGES, inference_copy
from ppocr_ext.engine.runners import GRAPH
from ppocr_ext.errors import ModelError
from ppocr_ext.messages import error_text
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.modeling.head_request import EVAL


class CtcReader(nn.Layer):
    """Return the CTC probabilities of a recogniser, with its branches folded into single convolutions.

    The softmax is applied once, features are pooled as in evaluation, and the branches that guide the training
    are left out. The recogniser itself does not change.

    Args:
        network: a ``BaseModel`` with a CTC head, its weights loaded.
    """

    def __init__(self, network: nn.Layer) -> None:
        super().__init__()
        self.network = inference_copy(network, EVAL)
        self.network.return_all_feats = False
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Map images [B, 3, H, W] to probabilities [B, T, C]."""
        return self.network(images, None, EVAL)


class Graph(NamedTuple):
    """What was written: the classes of its output, and how many numbers its weights are."""

    classes: int
    parameters: int


def write_graph(
    network: nn.Layer, folder: Path, image_shape: tuple[int, int, int], width: int | None = None
) -> Graph:
    """Write ``inference.json`` and ``inference.pdiparams``; the batch may be of any size.

    Args:
        network: a ``BaseModel`` with a CTC head, its weights loaded.
        folder: an existing folder.
        image_shape: [channels, height, width] of the images that it was evaluated on.
        width: the only width that the graph takes; None: every width.

    Raises:
        ModelError: the network returns no CTC probabilities, takes only one width, or Paddle cannot compile it.
    """
    reader = CtcReader(network)
    channels, height, _ = image_shape
    classes = _check_output(reader, image_shape, width)
    stem = str((folder / GRAPH).with_suffix(""))
    spec = InputSpec([None, channels, height, width], "float32", name=IMAGES)

    def save() -> None:
        compiled = paddle.jit.to_static(reader, input_spec=[spec], full_graph=True)
        paddle.jit.save(compiled, stem)

    captured(save, "The network cannot be compiled for inference", "not_compiled")
    if not (folder / GRAPH).is_file():
        raise ModelError(
            f"Paddle {paddle.__version__} cannot write {GRAPH}, the form that the clients read. Fix: pip install "
            f"'paddlepaddle>=3' (the checkpoint stays the same).",
            code="needs_paddle_3",
        )
    # of the file, since a network may have layers that only the training uses
    weights = paddle.jit.load(stem).state_dict().values()
    return Graph(classes, sum(int(np.prod(weight.shape)) for weight in weights))


@paddle.no_grad()
def _check_output(reader: CtcReader, image_shape: tuple[int, int, int], width: int | None) -> int:
    """Run a recogniser on noise, and return how many classes it has.

    Raises:
        ModelError: it does not return the softmax of its classifier's logits, these are not finite, or ``width`` is
            None and it takes only one width.
    """
    channels, height, usual = image_shape
    widths = (usual, 2 * usual) if width is None else (width,)
    classes = 0
    for each in widths:
        noise = np.random.default_rng(0).uniform(-1, 1, (1, channels, height, each)).astype(np.float32)
        try:
            with FeatureTap(reader) as tap:
                found = reader(paddle.to_tensor(noise))
        except Exception as error:
            if each == usual:
                raise
            raise ModelError(
                f"The network takes only images of width {usual} ({error_text(error)}). Fix: export it with "
                f"--width {usual}.",
                code="fixed_width",
            ) from error
        if not bool(paddle.isfinite(tap.logits).all()):
            raise ModelError(
                "The network gives numbers that are not finite: its weights are damaged. Fix: export another "
                "checkpoint of the run.",
                code="not_finite",
            )
        expected = F.softmax(tap.logits, axis=-1)
        same_shape = isinstance(found, Tensor) and found.shape == expected.shape
        if not same_shape or not bool(paddle.allclose(found, expected, atol=1e-5)):
            shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ModelError(
                f"The network does not return the probabilities of CTC, [batch, frames, classes], in evaluation "
                f"(found {shape}). Fix: its head must apply the softmax once, and only in evaluation.",
                code="unsupported_output",
            )
        classes = int(found.shape[-1])
    return classes
