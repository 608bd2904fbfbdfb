"""Compute the cross entropy of one head's decoder against its label: NRTR, SAR and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.losses.base_loss import PAD, Loss, Parts, head_batch, sequence_targets, to_logits, with_total
from ppocr_ext.losses.functional import smoothed_cross_entropy_rows, weighted_mean
from ppocr_ext.registry import LOSSES

SMOOTHING = 0.1
# Paddle's own default: no class has it, so every position counts.
_IGNORE_NOTHING = -100


def sequence_cross_entropy(
    logits: paddle.Tensor, targets: paddle.Tensor, smoothing: bool, ignore_index: int
) -> paddle.Tensor:
    """Return the mean cross entropy over the positions that count: a scalar; 0 if none counts.

    With smoothing all positions but padding count; without, those whose class is not ``ignore_index``
    (a negative one: all, padding too). This is PaddleOCR's rule.

    Args:
        logits: float32 [B, N, C].
        targets: int64 [B, N].
        smoothing: give 0.9 to the character and spread 0.1 over the other classes.
        ignore_index: class that does not count.
    """
    rows, classes = logits.reshape([-1, logits.shape[-1]]), targets.reshape([-1])
    if smoothing:
        losses = smoothed_cross_entropy_rows(rows, classes, SMOOTHING)
        return weighted_mean(losses, classes != PAD)
    ignored = ignore_index if ignore_index >= 0 else _IGNORE_NOTHING
    return F.cross_entropy(rows, classes, ignore_index=ignored)


@LOSSES.register()
class NRTRLoss(Loss):
    """Compute the mean cross entropy over all positions but padding (Sheng et al., ICDAR 2019, section III-D).

    ``predicts``: logits float32 [B, N, C] of the teacher-forced decoder.
    ``batch``: ``[image, label, length, …]``, label int64 [B, L] as ``<s> characters </s> padding``, L > N.

    Args:
        smoothing: label smoothing of 0.1 (Szegedy et al., CVPR 2016).
        ignore_index: class of the padding (without smoothing), 0 or more.

    Raises:
        ConfigError: ``ignore_index`` is negative and there is no smoothing.
    """

    requires = ("gtc",)

    def __init__(self, smoothing: bool = True, ignore_index: int = 0) -> None:
        super().__init__()
        if ignore_index < 0 and not smoothing:
            raise ConfigError(
                f"NRTRLoss: ignore_index is {ignore_index}; without smoothing it must be the class "
                f"of the padding, 0.",
                code="bad_value",
            )
        self.smoothing = smoothing
        self.ignore_index = ignore_index

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{"loss": scalar}``."""
        batch = head_batch(batch, "gtc", multi_head=False, where="NRTRLoss")
        logits = to_logits(predicts, "NRTRLoss: the prediction")
        targets = sequence_targets(batch, logits.shape[1], "NRTRLoss")
        return {"loss": sequence_cross_entropy(logits, targets, self.smoothing, self.ignore_index)}


@LOSSES.register()
class SARLoss(Loss):
    """Compute the mean cross entropy over all positions but padding (Li et al., AAAI 2019, section 3.4).

    ``predicts``: logits float32 [B, L, C], each behind one entry of the label; the last one has no target.
    ``batch``: ``[image, label, length, …]``, label int64 [B, L] as ``<BOS> characters <EOS> padding``.

    Args:
        ignore_index: class of the padding, n + 1; a run fills it in.
    """

    requires = ("sar",)

    def __init__(self, ignore_index: int = 92) -> None:
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{"loss": scalar}``.

        Raises:
            ModelError: logits and label have different lengths.
        """
        batch = head_batch(batch, "sar", multi_head=False, where="SARLoss")
        logits = to_logits(predicts, "SARLoss: the prediction")
        _, label, *_ = batch
        targets = label.astype("int64")
        if logits.shape[1] != targets.shape[1]:
            raise ModelError(
                f"SARLoss: the head predicts {logits.shape[1]} positions, but labels have {targets.shape[1]}. Fix: use "
                f"SARLabelEncode with the max_text_length of the SARHead.",
                code="shape_mismatch",
            )
        return {"loss": sequence_cross_entropy(logits[:, :-1], targets[:, 1:], False, self.ignore_index)}


@LOSSES.register()
class CELoss(Loss):
    """Compute the cross entropy of a decoder: NRTR's by default, ViTSTR's (``with_all``), or ABINet's (a mapping).

    ``predicts``: logits float32 [B, N, C]; or a mapping of name to logits or to a list of logits.
    ``batch``: ``[image, label, length, …]``, label int64 [B, L] as ``<s> characters </s> padding``.

    Kept for parity: without smoothing and with the default ``ignore_index`` padding counts as a character
    of class 0.

    Args:
        smoothing: label smoothing of 0.1; padding does not count.
        with_all: every entry of the label is a target, the first too (N = L).
        ignore_index: class that does not count (without smoothing); negative: every class counts.
    """

    requires = ("gtc",)

    def __init__(self, smoothing: bool = False, with_all: bool = False, ignore_index: int = -1) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.with_all = with_all
        self.ignore_index = ignore_index

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{"loss": scalar}``; for a mapping ``{NAME_loss: scalar, …, "loss": their sum}``."""
        batch = head_batch(batch, "gtc", multi_head=False, where="CELoss")
        if isinstance(predicts, Mapping):
            return with_total(
                {f"{name}_loss": self._every_entry(out, batch) for name, out in predicts.items()}
            )
        if self.with_all:
            return {"loss": self._every_entry([predicts], batch)}
        logits = to_logits(predicts, "CELoss: the prediction")
        targets = sequence_targets(batch, logits.shape[1], "CELoss")
        return {"loss": sequence_cross_entropy(logits, targets, self.smoothing, self.ignore_index)}

    def _every_entry(self, outputs: Any, batch: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Return the loss without smoothing of logits [B, L, C], or of a list of them, against the whole label."""
        several = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        logits = paddle.concat([to_logits(output, "CELoss: the prediction") for output in several])
        _, label, *_ = batch
        targets = paddle.concat([label] * len(several))
        return sequence_cross_entropy(logits, targets, smoothing=False, ignore_index=self.ignore_index)
