"""Connectionist temporal classification (Graves et al., ICML 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from ppocr_ext.errors import DataError, ModelError
from ppocr_ext.losses.base import Loss, Parts, Read, to_logits
from ppocr_ext.losses.targets import head_batch
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class CTCLoss(Loss):
    """Mean over the lines of ``-log p(label | logits)``; the blank is class 0.

    ``predicts``: logits float32 [B, T, C] without softmax, or ``(features, logits)``.
    ``batch``: ``[image, label, length, …]`` with label int [B, L] padded with 0 and length int [B].

    A label that does not fit its T frames (length plus one for each repeated neighbour) gives loss 0 and
    gradient 0 on CPU, as in PaddleOCR. A class id of C or more gives a wrong number, and a batch of empty
    labels only ends the process; where the label lies in CPU memory both are refused here, elsewhere a look
    would hold up the device: let the label files be checked before the run.

    Args:
        use_focal_loss: weigh each line by ``(1 - p(label))²`` (Lin et al., ICCV 2017, gamma 2).

    Raises:
        ModelError: logits and labels are of different numbers of lines.
        DataError: see above.
    """

    def __init__(self, use_focal_loss: bool = False) -> None:
        super().__init__()
        self.use_focal_loss = use_focal_loss

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """``{"loss": scalar}``."""
        logits = to_logits(predicts, "CTCLoss: the prediction")
        _, label, length, *_ = head_batch(batch, "ctc", multi_head=False, where="CTCLoss")
        _check(logits, label, length)
        lines, frames = logits.shape[:2]
        losses = F.ctc_loss(
            logits.transpose([1, 0, 2]),
            label.astype("int32"),
            paddle.full([lines], frames, dtype="int64"),
            length.astype("int64"),
            blank=0,
            reduction="none",
        )
        if self.use_focal_loss:
            losses = losses * (1.0 - paddle.exp(-losses)).square()
        return {"loss": losses.mean()}

    def reads(self) -> set[Read]:
        """The CTC head."""
        return {(None, "ctc")}


def _check(logits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor) -> None:
    lines, _, classes = logits.shape
    if label.ndim != 2 or label.shape[0] != lines or length.shape[0] != lines:
        raise ModelError(
            f"CTCLoss: {lines} lines of logits, but a label of shape {list(label.shape)} and "
            f"{length.shape[0]} lengths."
        )
    if not (label.place.is_cpu_place() and length.place.is_cpu_place()):
        return
    if not length.numpy().any():
        raise DataError("CTCLoss: no label of the batch has a character. Leave lines with empty labels out.")
    highest = int(label.numpy().max())
    if highest >= classes:
        raise DataError(
            f"CTCLoss: a label has the class {highest}, but the head has the classes 0 to {classes - 1}. "
            f"Is the dictionary the one that the head was made for?"
        )
