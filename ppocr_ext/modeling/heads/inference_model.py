"""An inference model as it is, in the place of a network: a frozen teacher that this package cannot build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ppocr_ext.errors import ModelError
from ppocr_ext.modeling.head_request import HeadRequest, default_request
from ppocr_ext.registry import HEADS


@HEADS.register()
class InferenceModel(nn.Layer):
    """Return the CTC outputs of an inference model, which a run opens. It is the only part of its sub-model.

    It has no parameters. Its digest is a buffer, so that checkpoints and caches know the model by it.

    Args:
        in_channels: channels of the images.
        out_channels: classes of the run's dictionary, the blank (0) included.
        sha256: digest of the model's files. A model that is not in our table needs it, since a model is a program.

    Attributes:
        branches: its only output.
        compute: images [B, C, H, W] → log-probabilities [B, T, out_channels].
    """

    branches = frozenset({"ctc"})

    def __init__(self, in_channels: int, out_channels: int, sha256: str | None = None) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.sha256 = sha256
        self.compute: Callable[[Tensor], Tensor] | None = None
        self.register_buffer("digest", paddle.zeros([32], "uint8"))

    def open(self, digest: str, compute: Callable[[Tensor], Tensor]) -> None:
        """Set what computes, and a SHA-256 (hex) of its files and of its dictionary."""
        self.compute = compute
        self.digest.set_value(np.frombuffer(bytes.fromhex(digest), "uint8"))

    def forward(
        self, images: Tensor, targets: Sequence[Tensor] | None = None, request: HeadRequest | None = None
    ) -> Any:
        """Return log-probabilities in the place of logits, ``{"ctc": [B, T, out_channels]}``; or probabilities.

        Args:
            images: [B, in_channels, H, W].
            targets: not used.
            request: only ``probabilities`` and ``as_dict`` are used.

        Raises:
            ModelError: no run has opened the model.
        """
        if self.compute is None:
            raise ModelError(
                "InferenceModel: only a run can open it. Fix: give its config to `ppocr-ext train`.",
                code="not_opened",
            )
        request = request or default_request(self.training)
        scores = self.compute(images)
        scores = scores.exp() if request.probabilities else scores
        return {"ctc": scores} if request.as_dict else scores
