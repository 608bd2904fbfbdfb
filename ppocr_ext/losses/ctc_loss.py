"""Compute the CTC loss (Graves et al., ICML 2006): Paddle's kernel, with what it lacks on some devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from ppocr_ext.data.batch_check import ctc_label_error, misfit_rows
from ppocr_ext.data.load_failures import passes_power_of_ten
from ppocr_ext.data.sample_rules import describe_frames
from ppocr_ext.errors import DataError, ModelError
from ppocr_ext.losses.base_loss import Loss, Parts, head_batch, to_logits
from ppocr_ext.messages import LOG, end_text
from ppocr_ext.registry import LOSSES

_BETWEEN_READS = 100  # batches; reading a count stalls a device
# What Paddle raises where its CTC kernel was not built for the GPU (PaddlePaddle/Paddle 75122, PaddleX 4535).
_NO_KERNEL = re.compile(r"warp-ctc.*Error in (get_workspace_size|compute_ctc_loss): execution failed")


@LOSSES.register()
class CTCLoss(Loss):
    """Compute the mean over the lines of ``-log p(label | logits)``; the blank is class 0.

    ``predicts``: logits float32 [B, T, C] without softmax, or ``(features, logits)``.
    ``batch``: ``[image, label, length, …]`` with label int [B, L] padded with 0 and length int [B].

    A misfit, a label that needs more than T frames (its length, plus one for each repeated neighbour), has the
    probability 0, so its loss is infinite. Misfits are found before the kernel, whose result for them depends on the
    device, and counted in the log. NaN stays NaN, also in a misfit, and so does a loss that is infinite for another
    reason.

    A class id outside 1 to C - 1 inside a label gives a wrong number, and a batch of empty labels ends the process.
    Both are errors here if the label is in CPU memory. Elsewhere the check would stall the device: a run checks the
    samples before they become a batch (:class:`ppocr_ext.data.batch_check.BatchLabelCheck`).

    Where Paddle's kernel cannot run on the device, its CPU kernel computes loss and gradient, with one warning.

    Args:
        use_focal_loss: multiply each line by ``(1 - p(label))²`` (Lin et al., ICCV 2017, gamma 2).
        zero_infinity: a misfit has loss 0 and gradient 0, as in PaddleOCR on a CPU; False: loss infinity.

    Raises:
        ModelError: logits and labels have different numbers of lines.
        DataError: a label in CPU memory cannot be learnt.
    """

    requires = ("ctc",)

    def __init__(self, use_focal_loss: bool = False, zero_infinity: bool = True) -> None:
        super().__init__()
        self.use_focal_loss = use_focal_loss
        self.zero_infinity = zero_infinity
        self._kernel = _Kernel()
        self._misfits = _MisfitCount()

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{"loss": scalar}``."""
        return {"loss": self.line_losses(predicts, batch).mean()}

    def line_losses(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Return the loss of each line, float32 [B]."""
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
        label, length = label.astype("int32"), length.astype("int64").reshape([-1])
        fits = frames_needed(label, length) <= frames
        # a misfit goes through the kernel with its first character alone, which always fits
        losses = self._kernel(logits, label, paddle.where(fits, length, paddle.ones_like(length)))
        losses = losses * fits.astype(losses.dtype)  # a product, since NaN times 0 is NaN
        if not self.zero_infinity:
            losses = losses + paddle.where(fits, 0.0, float("inf")).astype(losses.dtype)
        self._misfits.add(fits, label, length, frames)
        if self.use_focal_loss:
            losses = losses * (1.0 - paddle.exp(-losses)).square()
        return losses


def frames_needed(label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
    """Return the frames that CTC needs for each label, int64 [B]: its length, and one for each repeated neighbour.

    The rule is that of :func:`ppocr_ext.data.sample_rules.frames_needed`, on the device of the labels.

    Args:
        label: int [B, L], padded; what is behind a label's length does not count.
        length: int64 [B].
    """
    if label.shape[1] < 2:
        return length
    inside = paddle.arange(1, label.shape[1], dtype="int64").unsqueeze(0) < length.unsqueeze(1)
    repeats = paddle.logical_and(label[:, 1:] == label[:, :-1], inside)
    return length + repeats.astype("int64").sum(axis=1)


class _Kernel:
    """Paddle's CTC kernel on the device of the logits, or on the CPU once that has failed."""

    def __init__(self) -> None:
        self._use_cpu = False

    def __call__(self, logits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
        """Return the loss of each line, float32 [B], for logits [B, T, C], label int32 [B, L], length int64 [B]."""
        frames_first = logits.transpose([1, 0, 2])
        if not self._use_cpu:
            try:
                return _paddle_losses(frames_first, label, length)
            except Exception as error:  # Paddle has no class of its own for it; all others are passed on
                if not _NO_KERNEL.search(str(error)):
                    raise
                self._use_cpu = True
                LOG.warning(
                    "CTCLoss: Paddle's CTC kernel does not run on this device (%s). Loss and gradient are computed on "
                    "the CPU from here on, which is slower.",
                    end_text(error),
                )
        return _cpu_losses(frames_first, label, length)


def _paddle_losses(logits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
    """Return Paddle's CTC loss of each line, [B], for logits [T, B, C]."""
    frames = paddle.full([logits.shape[1]], logits.shape[0], dtype="int64")
    return F.ctc_loss(logits, label, frames, length, blank=0, reduction="none")


def _cpu_losses(logits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
    """Return the same by the CPU's kernel, for tensors on any device."""
    copy = logits.detach().cpu()
    copy.stop_gradient = False
    with paddle.enable_grad():
        losses = _paddle_losses(copy, label.cpu(), length.cpu())
    [gradient] = paddle.grad(losses.sum(), copy)
    return _WithGradient.apply(logits, losses.detach().to(logits.place), gradient.to(logits.place))


class _WithGradient(PyLayer):
    """Give losses [B] that were computed elsewhere the ``gradient`` [T, B, C] that was computed there."""

    @staticmethod
    def forward(
        ctx: Any, logits: paddle.Tensor, losses: paddle.Tensor, gradient: paddle.Tensor
    ) -> paddle.Tensor:
        """Return ``losses``; ``logits`` are what the gradient goes to."""
        ctx.save_for_backward(gradient)
        return losses.clone()

    @staticmethod
    def backward(ctx: Any, weights: paddle.Tensor) -> tuple[paddle.Tensor, None, None]:
        """Return the gradient of the logits; ``weights`` [B] is that of the losses."""
        [gradient] = ctx.saved_tensor()
        return gradient * weights.reshape([1, -1, 1]), None, None


class _MisfitCount:
    """Counts the misfits of all batches, and warns at the 1st, 10th, 100th, … of them."""

    def __init__(self) -> None:
        self._batches = 0
        self._lines = 0
        self._count: Any = 0  # a tensor, which stays on its device
        self._told = 0

    def add(self, fits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor, frames: int) -> None:
        """Count the lines of a batch that do not fit T = ``frames``; ``fits`` is bool [B]."""
        self._batches += 1
        self._lines += fits.shape[0]
        self._count = self._count + paddle.logical_not(fits).astype("int64").sum()
        on_cpu = _on_cpu(fits, label, length)
        if not on_cpu and self._batches % _BETWEEN_READS:
            return
        count = int(self._count)
        if passes_power_of_ten(self._told, count):
            example = _example(label.numpy(), length.numpy(), frames) if on_cpu else f"T is {frames}"
            LOG.warning(
                "CTCLoss: %d of %d labels so far need more frames than CTC has, so they train nothing: %s.",
                count,
                self._lines,
                example,
            )
            self._told = count


def _example(label: np.ndarray, length: np.ndarray, frames: int) -> str:
    """Describe the first misfit of a batch."""
    row = misfit_rows(label, length, frames)[0]
    return describe_frames(label[row, : length[row]].tolist(), frames)


def _on_cpu(*tensors: paddle.Tensor) -> bool:
    """Return whether all ``tensors`` are in CPU memory: reading others would stall the device."""
    return all(tensor.place.is_cpu_place() for tensor in tensors)
