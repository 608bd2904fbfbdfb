"""Requests: which outputs a network returns and how it pools, independent of train and eval mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from paddle import Tensor, nn

from ppocr_ext.base.parts import BRANCH_ROWS

BRANCH_LAYERS = {name: row.layers for name, row in BRANCH_ROWS.items()}
BRANCHES = frozenset(BRANCH_LAYERS)


@dataclass(frozen=True)
class HeadRequest:
    """The outputs that a head should return, and how a backbone pools.

    Attributes:
        branches: any of ``ctc``, ``gtc`` (NRTR) and ``sar``; branches that a head lacks are ignored.
        probabilities: CTC returns probabilities instead of logits.
        decode: NRTR decodes greedily and gets no target.
        as_dict: a MultiHead returns ``{"ctc", "ctc_neck", "gtc", "sar"}`` for the losses; otherwise it returns the bare
            output of its first branch in this order.
        for_training: the backbone pools as in training, into ``train_frames`` frames if it has that key.
        features: True if CTC returns (features, logits). With None, its option ``return_feats`` decides.
    """

    branches: frozenset[str]
    probabilities: bool = False
    decode: bool = False
    as_dict: bool = True
    for_training: bool = False
    features: bool | None = None


TRAIN = HeadRequest(BRANCHES, for_training=True)
EVAL = HeadRequest(frozenset({"ctc"}), probabilities=True, as_dict=False)


def default_request(training: bool) -> HeadRequest:
    """Return PaddleOCR's request: all outputs for the losses in train mode, CTC probabilities otherwise."""
    return TRAIN if training else EVAL


def is_for_losses(request: HeadRequest) -> bool:
    """Return whether the output has PaddleOCR's form in train mode, which losses read."""
    return request.as_dict and not request.probabilities and not request.decode


def understands_requests(head: nn.Layer) -> bool:
    """Return whether ``head.forward`` takes a ``request``; heads of the host and of plugins do not."""
    return _takes(type(head).forward, "request")


@cache  # called in every step, and Paddle 2.6 cannot compile what `inspect` does
def _takes(forward: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(forward).parameters


def call_backbone(backbone: nn.Layer, images: Tensor, request: HeadRequest) -> Any:
    """Run any backbone; if it pools differently in training, the request decides, not the mode of the backbone.

    So a frozen teacher in eval mode returns as many frames as its student.
    """
    if _takes(type(backbone).forward, "for_training"):
        return backbone(images, for_training=request.for_training)
    return backbone(images)


def call_head(
    head: nn.Layer, features: Tensor, targets: Sequence[Tensor] | None, request: HeadRequest
) -> Any:
    """Call any head, and return the outputs of ``request``.

    A head without requests decides by its ``training`` flag, which is set by the request during the call. The flags of
    its layers do not change, so that BatchNorm and dropout of a frozen network stay in eval mode.
    """
    if understands_requests(head):
        return head(features, targets=targets, request=request)
    was_training = head.training
    head.training = is_for_losses(request)
    try:
        return head(features, targets=targets)
    finally:
        head.training = was_training
