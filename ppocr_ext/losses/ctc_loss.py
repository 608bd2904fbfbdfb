"""Compute connectionist temporal classification (Graves et al., ICML 2006)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ppocr_ext.data.batch_check import ctc_label_error, misfit_rows
from ppocr_ext.data.sample_rules import describe_frames
from ppocr_ext.errors import DataError, ModelError
from ppocr_ext.losses.base_loss import Loss, Parts, head_batch, to_logits
from ppocr_ext.registry import LOSSES

_LOG = logging.getLogger("ppocr_ext")


@LOSSES.register()
class CTCLoss(Loss):
    """Compute the mean over the lines of ``-log p(label | logits)``; the blank is class 0.

    ``predicts``: logits float32 [B, T, C] without softmax, or ``(features, logits)``.
    ``batch``: ``[image, label, length, …]`` with label int [B, L] padded with 0 and length int [B].

    A label that needs more than T frames (its length, plus one for each repeated neighbour) has loss 0 and
    gradient 0 on CPU, as in PaddleOCR; a warning names the first such label. A class id outside 1 to
    C - 1 inside a label gives a wrong number, and a batch of empty labels ends the process. Both are errors here
    if the label is in CPU memory. Elsewhere the check would stall the device: a run checks the samples
    before they become a batch (:class:`ppocr_ext.data.batch_check.BatchLabelCheck`).

    Args:
        use_focal_loss: multiply each line by ``(1 - p(label))²`` (Lin et al., ICCV 2017, gamma 2).

    Raises:
        ModelError: logits and labels have different numbers of lines.
        DataError: a label in CPU memory cannot be learnt.
    """

    requires = ("ctc",)

    def __init__(self, use_focal_loss: bool = False) -> None:
        super().__init__()
        self.use_focal_loss = use_focal_loss
        self._warned = False

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{"loss": scalar}``."""
        logits = to_logits(predicts, "CTCLoss: the prediction")
        _, label, length, *_ = head_batch(batch, "ctc", multi_head=False, where="CTCLoss")
        lines, frames, classes = logits.shape
        if label.ndim != 2 or label.shape[0] != lines or length.shape[0] != lines:
            raise ModelError(
                f"CTCLoss: {lines} lines of logits, but a label of shape {list(label.shape)} and "
                f"{length.shape[0]} lengths.",
                code="shape_mismatch",
            )
        if _on_cpu(label, length):
            issue = ctc_label_error(label.numpy(), length.numpy().reshape(-1), classes)
            if issue is not None:
                raise DataError(f"CTCLoss: {issue}", code="bad_label")
        losses = F.ctc_loss(
            logits.transpose([1, 0, 2]),
            label.astype("int32"),
            paddle.full([lines], frames, dtype="int64"),
            length.astype("int64"),
            blank=0,
            reduction="none",
        )
        if not self._warned and _on_cpu(losses, label, length):
            self._warn_of_zero(losses.numpy(), label.numpy(), length.numpy().reshape(-1), frames)
        if self.use_focal_loss:
            losses = losses * (1.0 - paddle.exp(-losses)).square()
        return {"loss": losses.mean()}

    def _warn_of_zero(self, losses: np.ndarray, labels: np.ndarray, lengths: np.ndarray, frames: int) -> None:
        """Name the first label with loss 0 that is too long; a sure model reaches 0 too."""
        zero = np.flatnonzero(losses.reshape(-1) == 0)
        rows = misfit_rows(labels[zero], lengths[zero], frames) if len(zero) else []
        if rows:
            self._warned = True
            row = zero[rows[0]]
            needed = describe_frames(labels[row, : lengths[row]].tolist(), frames)
            _LOG.warning("CTCLoss: the loss of a label is 0, so it trains nothing: %s.", needed)


def _on_cpu(*tensors: paddle.Tensor) -> bool:
    """Return whether all ``tensors`` are in CPU memory: reading others would stall the device."""
    return all(tensor.place.is_cpu_place() for tensor in tensors)
