"""Cross entropy of the NRTR branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base import Loss, Parts, Read, to_logits
from ppocr_ext.losses.ce import sequence_cross_entropy
from ppocr_ext.losses.targets import head_batch, sequence_targets
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class NRTRLoss(Loss):
    """Mean cross entropy over the positions that are no padding (Sheng et al., ICDAR 2019, section III-D).

    ``predicts``: logits float32 [B, N, C] of the teacher-forced decoder.
    ``batch``: ``[image, label, length, …]``, label int64 [B, L] as ``<s> characters </s> padding``, L > N.

    Args:
        smoothing: label smoothing of 0.1 (Szegedy et al., CVPR 2016).
        ignore_index: class of the padding (without smoothing), 0 or more.

    Raises:
        ConfigError: ``ignore_index`` is negative and there is no smoothing.
    """

    def __init__(self, smoothing: bool = True, ignore_index: int = 0) -> None:
        super().__init__()
        if ignore_index < 0 and not smoothing:
            raise ConfigError(
                f"NRTRLoss: ignore_index is {ignore_index}; without smoothing it must be the class "
                f"of the padding, 0."
            )
        self.smoothing = smoothing
        self.ignore_index = ignore_index

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """``{"loss": scalar}``."""
        batch = head_batch(batch, "gtc", multi_head=False, where="NRTRLoss")
        logits = to_logits(predicts, "NRTRLoss: the prediction")
        targets = sequence_targets(batch, logits.shape[1], "NRTRLoss")
        return {"loss": sequence_cross_entropy(logits, targets, self.smoothing, self.ignore_index)}

    def reads(self) -> set[Read]:
        """The NRTR branch."""
        return {(None, "gtc")}
