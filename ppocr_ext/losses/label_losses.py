"""Compute the losses of one head against its label: CTC (Graves et al., ICML 2006), NRTR, SAR and others.

CTC is computed by Paddle's kernel, or by its CPU kernel on devices where the first fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from ppocr_ext.data.batch_check import ctc_label_error, misfit_rows
from ppocr_ext.data.load_failures import passes_power_of_ten
from ppocr_ext.data.sample_rules import describe_frames
from ppocr_ext.errors import ConfigError, DataError, ModelError
from ppocr_ext.losses.base_loss import PAD, Loss, Parts, head_batch, sequence_targets, to_logits, with_total
from ppocr_ext.losses.functional import smoothed_cross_entropy_rows, weighted_mean
from ppocr_ext.messages import LOG, end_text
from ppocr_ext.registry import LOSSES

_BETWEEN_READS = 100  # batches between two reads of a count, since a read stalls the device
# Paddle's message if its CTC kernel was not built for the GPU (PaddlePaddle/Paddle 75122, PaddleX 4535).
_NO_KERNEL = re.compile(r"warp-ctc.*Error in (get_workspace_size|compute_ctc_loss): execution failed")


@LOSSES.register()
class CTCLoss(Loss):
    """Compute the mean over the lines of ``-log p(label | logits)``; the blank is class 0.

    >>> list(CTCLoss()(ctc, ctc_batch))
    ['loss']

    ``predicts``: logits float32 [B, T, C] without softmax, or ``(features, logits)``.
    ``batch``: ``[image, label, length, …]`` with label int [B, L] padded with 0 and length int [B].

    A misfit is a label that needs more than T frames: its length, plus one for each repeated neighbour. Its probability
    is 0, so its loss is infinite. Misfits are found before the kernel runs, since the kernel's result for them depends
    on the device. The log counts them. NaN stays NaN, even in a misfit; a loss that is infinite for another reason
    stays infinite.

    In Paddle, a class id outside 1 to C - 1 gives a wrong number, and a batch of empty labels ends the process. Both
    are errors here if the label is in CPU memory. On another device this check would stall it; there, a run checks the
    samples before they become a batch (:class:`ppocr_ext.data.batch_check.BatchLabelCheck`).

    If Paddle's kernel cannot run on the device, its CPU kernel computes loss and gradient, with one warning.

    Args:
        use_focal_loss: multiply each line by ``(1 - p(label))²`` (Lin et al., ICCV 2017, gamma 2).
        zero_infinity: give a misfit loss 0 and gradient 0, as PaddleOCR does on a CPU. With False its loss is infinite.

    Raises:
        ModelError: logits and labels have different numbers of lines.
        DataError: a label in CPU memory cannot be learnt.
    """

    requires = ("ctc",)

    def __init__(self, use_focal_loss: bool = False, zero_infinity: bool = True) -> None:
        super().__init__()
        self.use_focal_loss = use_focal_loss
        self.zero_infinity = zero_infinity
        self._use_cpu = False  # after Paddle's kernel has failed on the device
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
        label = label.astype("int32")
        length = length.astype("int64").reshape([-1])
        fits = frames_needed(label, length) <= frames
        # The kernel gets only the first character of a misfit, which always fits.
        losses = self._kernel(logits, label, paddle.where(fits, length, paddle.ones_like(length)))
        losses = losses * fits.astype(losses.dtype)  # a product, since NaN times 0 is NaN
        if not self.zero_infinity:
            losses = losses + paddle.where(fits, 0.0, float("inf")).astype(losses.dtype)
        self._misfits.add(fits, label, length, frames)
        if self.use_focal_loss:
            losses = losses * (1.0 - paddle.exp(-losses)).square()
        return losses

    def _kernel(self, logits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
        """Return the loss of each line, float32 [B], for logits [B, T, C], label int32 [B, L], length int64 [B]."""
        frames_first = logits.transpose([1, 0, 2])
        if not self._use_cpu:
            try:
                return _paddle_losses(frames_first, label, length)
            except Exception as error:  # Paddle raises no class of its own for this error
                if not _NO_KERNEL.search(str(error)):
                    raise
                self._use_cpu = True
                LOG.warning(
                    "CTCLoss: Paddle's CTC kernel does not run on this device (%s). From now on, loss and gradient are "
                    "computed on the CPU, which is slower.",
                    end_text(error),
                )
        return _cpu_losses(frames_first, label, length)


def frames_needed(label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
    """Return the frames that CTC needs for each label, int64 [B]: its length, and one for each repeated neighbour.

    It is the rule of :func:`ppocr_ext.data.sample_rules.frames_needed`, computed on the device of the labels.

    Args:
        label: int [B, L], padded; entries after a label's length do not count.
        length: int64 [B].
    """
    if label.shape[1] < 2:
        return length
    inside = paddle.arange(1, label.shape[1], dtype="int64").unsqueeze(0) < length.unsqueeze(1)
    repeats = paddle.logical_and(label[:, 1:] == label[:, :-1], inside)
    return length + repeats.astype("int64").sum(axis=1)


def _paddle_losses(logits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
    """Return Paddle's CTC loss of each line, [B], for logits [T, B, C]."""
    frames = paddle.full([logits.shape[1]], logits.shape[0], dtype="int64")
    return F.ctc_loss(logits, label, frames, length, blank=0, reduction="none")


def _cpu_losses(logits: paddle.Tensor, label: paddle.Tensor, length: paddle.Tensor) -> paddle.Tensor:
    """Return the same losses, computed by the CPU kernel for tensors on any device."""
    copy = logits.detach().cpu()
    copy.stop_gradient = False
    with paddle.enable_grad():
        losses = _paddle_losses(copy, label.cpu(), length.cpu())
    [gradient] = paddle.grad(losses.sum(), copy)
    return _WithGradient.apply(logits, losses.detach().to(logits.place), gradient.to(logits.place))


class _WithGradient(PyLayer):
    """Connect losses [B] to the ``gradient`` [T, B, C] that was computed with them on another device."""

    @staticmethod
    def forward(
        ctx: Any, logits: paddle.Tensor, losses: paddle.Tensor, gradient: paddle.Tensor
    ) -> paddle.Tensor:
        """Return ``losses``; the gradient goes to ``logits``."""
        ctx.save_for_backward(gradient)
        return losses.clone()

    @staticmethod
    def backward(ctx: Any, weights: paddle.Tensor) -> tuple[paddle.Tensor, None, None]:
        """Return the gradient of the logits; ``weights`` [B] is the gradient of the losses."""
        [gradient] = ctx.saved_tensor()
        return gradient * weights.reshape([1, -1, 1]), None, None


class _MisfitCount:
    """Count the misfits of all batches, and warn at the 1st, 10th, 100th, …"""

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
                "CTCLoss: %d of %d labels so far need more frames than CTC has, so they have no effect: %s.",
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
    """Return whether all ``tensors`` are in CPU memory; reading others would stall their device."""
    return all(tensor.place.is_cpu_place() for tensor in tensors)


SMOOTHING = 0.1
# Paddle's default: no class has this id, so every position counts.
_IGNORE_NOTHING = -100


def sequence_cross_entropy(
    logits: paddle.Tensor, targets: paddle.Tensor, smoothing: bool, ignore_index: int
) -> paddle.Tensor:
    """Return the mean cross entropy over the positions that count, a scalar; 0 if no position counts.

    This is PaddleOCR's rule: with smoothing, all positions except padding count. Without smoothing, all positions count
    whose class is not ``ignore_index``. If that is negative, padding counts too.

    Args:
        logits: float32 [B, N, C].
        targets: int64 [B, N].
        smoothing: give 0.9 to the character and spread 0.1 over the other classes.
        ignore_index: class that does not count.
    """
    rows = logits.reshape([-1, logits.shape[-1]])
    classes = targets.reshape([-1])
    if smoothing:
        losses = smoothed_cross_entropy_rows(rows, classes, SMOOTHING)
        return weighted_mean(losses, classes != PAD)
    ignored = ignore_index if ignore_index >= 0 else _IGNORE_NOTHING
    return F.cross_entropy(rows, classes, ignore_index=ignored)


@LOSSES.register()
class NRTRLoss(Loss):
    """Compute the mean cross entropy over all positions except padding (Sheng et al., ICDAR 2019, section III-D).

    >>> list(NRTRLoss()(gtc, gtc_batch))
    ['loss']

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
                f"NRTRLoss: ignore_index is {ignore_index}, but without smoothing it must be the class of the "
                f"padding, 0.",
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
    """Compute the mean cross entropy over all positions except padding (Li et al., AAAI 2019, section 3.4).

    >>> list(SARLoss()(sar, gtc_batch))
    ['loss']

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

    >>> list(CELoss()(gtc, gtc_batch))
    ['loss']

    ``predicts``: logits float32 [B, N, C], or a mapping from names to logits or to lists of logits.
    ``batch``: ``[image, label, length, …]``, label int64 [B, L] as ``<s> characters </s> padding``.

    Kept for parity: without smoothing and with the default ``ignore_index`` padding counts as a character
    of class 0.

    Args:
        smoothing: label smoothing of 0.1; padding does not count.
        with_all: take every entry of the label as a target, even the first (N = L).
        ignore_index: class that does not count (without smoothing). If it is negative, every class counts.
    """

    requires = ("gtc",)

    def __init__(self, smoothing: bool = False, with_all: bool = False, ignore_index: int = -1) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.with_all = with_all
        self.ignore_index = ignore_index

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{"loss": scalar}``, or for a mapping ``{NAME_loss: scalar, …, "loss": their sum}``."""
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
        """Return the loss of logits [B, L, C], or of a list of them, against the whole label, without smoothing."""
        several = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        logits = paddle.concat([to_logits(output, "CELoss: the prediction") for output in several])
        _, label, *_ = batch
        targets = paddle.concat([label] * len(several))
        return sequence_cross_entropy(logits, targets, smoothing=False, ignore_index=self.ignore_index)
