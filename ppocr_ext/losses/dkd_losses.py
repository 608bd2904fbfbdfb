"""Decoupled knowledge distillation (Zhao et al., CVPR 2022): PaddleOCR's form, and one without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base_loss import PAD, check_option
from ppocr_ext.losses.distillation_base import PairLoss
from ppocr_ext.losses.frame_distillation import frame_weights, teacher_frames
from ppocr_ext.losses.functional import TINY, dkd_rows, weighted_mean
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationDKDLoss(PairLoss):
    """Compute ``τ² · (α · TCKD + β · NCKD)`` between the decoders of two sub-models.

    TCKD is the KL divergence of (target character, all others), NCKD that among the other characters,
    teacher against student, both at temperature τ, averaged over all positions.

    Kept for parity: positions of padding count as characters of class 0 (PaddleOCR computes a mask and
    ignores it). :class:`MaskedDKDLoss` leaves them out. CTC frames have no target character, and PaddleOCR
    fails on ``dis_head: ctc``: it is an error here, and MaskedDKDLoss has a formulation.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: as in :class:`PairLoss`.
        multi_head: likewise; False: the only head is the decoder, and the batch ``[image, label, length]``.
        dis_head: ``gtc``.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        alpha: weight of TCKD.
        beta: weight of NCKD.

    Raises:
        ConfigError: ``dis_head`` is ``ctc``, the default as in PaddleOCR, or another option cannot be used.
        ModelError: the outputs do not match each other or the label.
    """

    accepts_frames = False  # whether a CTC head can be distilled

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        multi_head: bool = False,
        dis_head: str = "ctc",
        name: str = "dkd",
        temperature: float = 1.0,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, dis_head, name, heads=("gtc", "ctc"))
        owner = self.path.owner
        if dis_head == "ctc" and not self.accepts_frames:
            raise ConfigError(
                f"{owner}: `dis_head: ctc` has no target character for a frame. Fix: set `dis_head: gtc`, or "
                f"use MaskedDKDLoss, which takes the teacher's reading as the target.",
                code="bad_value",
            )
        self.temperature = check_option(temperature, f"{owner}: temperature", above=0.0)
        self.alpha = check_option(alpha, f"{owner}: alpha")
        self.beta = check_option(beta, f"{owner}: beta")

    def needs_all_classes(self) -> bool:
        """Return True except for TCKD: NCKD compares improbable classes among themselves."""
        return self.beta != 0 or self.temperature > 1

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return the mean over all positions of logits [B, N, C]."""
        targets = self.targets(student, teacher, batch)
        target_part, other_part = self._parts(student, teacher / self.temperature, targets)
        both = self.alpha * target_part.mean() + self.beta * other_part.mean()
        return both * self.temperature**2

    def _parts(
        self, student: paddle.Tensor, scaled_teacher: paddle.Tensor, targets: paddle.Tensor
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return TCKD and NCKD [B · N]; the teacher's logits are divided by the temperature already."""
        rows = student.flatten(0, 1) / self.temperature
        return dkd_rows(rows, scaled_teacher.flatten(0, 1), targets.reshape([-1]))


@LOSSES.register()
class MaskedDKDLoss(DistillationDKDLoss):
    """Compute ``τ² · (α · TCKD + β · NCKD)`` as a mean over all positions but padding.

    ``dis_head: gtc``: the target of a position is its character in the label, as in PaddleOCR's
    ``DistillationDKDLoss``; positions after ``</s>`` do not count.

    ``dis_head: ctc``: the label does not tell which frame shows what, so the target of a frame is what the
    teacher reads there, blank or character. TCKD then teaches how sure the teacher is, NCKD what else it
    might be (the look-alikes). :class:`CTCFrameKDLoss` describes which frames count, and how the frames of
    sub-models with different numbers of them are aligned.

    The teacher gets no gradient. If no position counts: 0.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: as in :class:`PairLoss`.
        multi_head: likewise; False: ``dis_head`` tells what the only head is.
        dis_head: ``gtc`` or ``ctc``.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        alpha: weight of TCKD.
        beta: weight of NCKD.
        blank_weight: for ``ctc``: weight of the frames that the teacher reads as a blank, not negative.
        skip_padding: for ``ctc``: blanks beyond valid_ratio do not count.

    Raises:
        ConfigError: an option cannot be used, or an output is not among the predictions.
        ModelError: the outputs do not match each other or the label.
    """

    accepts_frames = True
    detaches = True

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        multi_head: bool = False,
        dis_head: str = "gtc",
        name: str = "masked_dkd",
        temperature: float = 1.0,
        alpha: float = 1.0,
        beta: float = 1.0,
        blank_weight: float = 1.0,
        skip_padding: bool = True,
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, dis_head, name, temperature, alpha, beta)
        self.blank_weight = check_option(blank_weight, "MaskedDKDLoss: blank_weight", least=0.0)
        self.skip_padding = skip_padding

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return a scalar from logits [B, N, C]."""
        frames = student.shape[1]
        if self.dis_head == "gtc" or teacher.shape[1] == frames:
            scaled = teacher.detach() / self.temperature
        else:
            scaled = teacher_frames(teacher, frames, self.temperature).clip(min=TINY).log()
        if self.dis_head == "gtc":
            targets = self.targets(student, teacher, batch)
            weights = targets != PAD
        else:
            targets = scaled.argmax(axis=-1)
            weights = frame_weights(targets, batch, self.multi_head, self.blank_weight, self.skip_padding)
        target_part, other_part = self._parts(student, scaled, targets)
        rows = self.alpha * target_part + self.beta * other_part
        return weighted_mean(rows, weights.reshape([-1])) * self.temperature**2
