"""Classify each frame as a character or the blank: the CTC head."""

from __future__ import annotations

import math
from collections.abc import Sequence

import paddle
import paddle.nn.functional as F
from paddle import ParamAttr, Tensor, nn

from ppocr_ext.modeling.head_request import HeadRequest, default_request
from ppocr_ext.modeling.layers import Linear
from ppocr_ext.registry import HEADS


@HEADS.register()
class CTCHead(nn.Layer):
    """Classify frames by a linear layer (Graves et al., 2006), optionally after a narrower linear layer.

    Args:
        in_channels: features of a frame.
        out_channels: classes, the blank (0) included.
        fc_decay: L2 decay of its weights and biases, in place of the optimizer's.
        mid_channels: width of a linear layer before the classifier; none by default.
        return_feats: also return the classifier's input. PaddleOCR does so in train mode only. An exported
            graph returns only the probabilities, which its callers expect.
        use_guide: mix neighbouring frames by convolutions before the linear layers (PP-OCRv6 tiny).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        fc_decay: float = 0.0004,
        mid_channels: int | None = None,
        return_feats: bool = False,
        use_guide: bool = False,
    ) -> None:
        super().__init__()
        self.guide_layer = _guide(in_channels) if use_guide else None
        if mid_channels is None:
            self.fc = _classifier(in_channels, out_channels, fc_decay)
        else:
            self.fc1 = _classifier(in_channels, mid_channels, fc_decay)
            self.fc2 = _classifier(mid_channels, out_channels, fc_decay)
        self.out_channels = out_channels
        self.mid_channels = mid_channels
        self.return_feats = return_feats

    def forward(
        self,
        frames: Tensor,
        targets: Sequence[Tensor] | None = None,
        request: HeadRequest | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Classify frames.

        Args:
            frames: [B, T, in_channels].
            targets: not used.
            request: only ``probabilities`` and ``features`` are used.

        Returns:
            Logits or probabilities [B, T, out_channels]; with features (features, logits), the features [B, T, D]
            being the classifier's input (not in an exported graph).
        """
        request = request or default_request(self.training)
        if self.guide_layer is not None:
            frames = self.guide_layer(frames.transpose([0, 2, 1])).transpose([0, 2, 1])
        features = frames if self.mid_channels is None else self.fc1(frames)
        scores = self.fc(features) if self.mid_channels is None else self.fc2(features)
        if request.probabilities:
            scores = F.softmax(scores, axis=-1)
        exported = request.probabilities and not paddle.in_dynamic_mode()
        wanted = self.return_feats if request.features is None else request.features
        return (features, scores) if wanted and not exported else scores


def _classifier(in_features: int, out_features: int, decay: float) -> Linear:
    bound = 1.0 / math.sqrt(in_features)

    def attr() -> ParamAttr:
        return ParamAttr(
            regularizer=paddle.regularizer.L2Decay(decay),
            initializer=nn.initializer.Uniform(-bound, bound),
        )

    return Linear(in_features, out_features, weight_attr=attr(), bias_attr=attr())


def _guide(dim: int) -> nn.Layer:
    """Return a depthwise convolution of 5 frames and a pointwise one: [B, dim, T] to the same shape."""
    return nn.Sequential(
        nn.Conv1D(dim, dim, 5, padding=2, groups=dim, bias_attr=False),
        nn.BatchNorm1D(dim),
        nn.Hardswish(),
        nn.Conv1D(dim, dim, 1, bias_attr=False),
        nn.BatchNorm1D(dim),
        nn.Hardswish(),
    )
