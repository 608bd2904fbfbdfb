"""What a network is asked to return, apart from whether it is in train or eval mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from paddle import Tensor, nn

BRANCHES = frozenset({"ctc", "gtc", "sar"})


@dataclass(frozen=True)
class HeadRequest:
    """What a head returns.

    Attributes:
        branches: those wanted of ``ctc``, ``gtc`` (NRTR) and ``sar``; one that a head lacks is ignored.
        probabilities: CTC gives probabilities instead of logits.
        decode: NRTR decodes greedily instead of being given the target.
        as_dict: a MultiHead gives ``{"ctc", "ctc_neck", "gtc", "sar"}``, as the losses read it;
            otherwise the bare output of its first wanted branch.
    """

    branches: frozenset[str]
    probabilities: bool = False
    decode: bool = False
    as_dict: bool = True


TRAIN = HeadRequest(BRANCHES)
EVAL = HeadRequest(frozenset({"ctc"}), probabilities=True, as_dict=False)


def default_request(training: bool) -> HeadRequest:
    """PaddleOCR's behaviour: everything for the losses in train mode, CTC probabilities otherwise."""
    return TRAIN if training else EVAL


def is_for_losses(request: HeadRequest) -> bool:
    """Whether the answer is the one a network gives PaddleOCR in train mode."""
    return request.as_dict and not request.probabilities and not request.decode


def understands_requests(head: nn.Layer) -> bool:
    """Whether ``head.forward`` takes a ``request``; one from the host or a plugin does not."""
    return _takes_request(type(head).forward)


@cache  # asked in every step, and Paddle 2.6 cannot compile what `inspect` does
def _takes_request(forward: Callable[..., Any]) -> bool:
    return "request" in inspect.signature(forward).parameters


def call_head(
    head: nn.Layer, features: Tensor, targets: Sequence[Tensor] | None, request: HeadRequest
) -> Any:
    """Ask any head for what ``request`` says.

    A head that knows no requests decides by its own ``training`` flag. For the time of the call that
    flag says what is wanted; the flags of the layers inside it stay, so that BatchNorm and dropout
    of a frozen network remain in eval mode.
    """
    if understands_requests(head):
        return head(features, targets=targets, request=request)
    was_training = head.training
    head.training = is_for_losses(request)
    try:
        return head(features, targets=targets)
    finally:
        head.training = was_training
