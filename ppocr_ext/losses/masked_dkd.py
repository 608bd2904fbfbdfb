"""Decoupled knowledge distillation of the positions that mean something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from ppocr_ext.losses.base import number
from ppocr_ext.losses.distillation import PairLoss, same_positions
from ppocr_ext.losses.frames import frame_weights, teacher_frames
from ppocr_ext.losses.functional import TINY, dkd_rows, weighted_mean
from ppocr_ext.losses.targets import PAD, head_batch, sequence_targets
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class MaskedDKDLoss(PairLoss):
    """``τ² · (α · TCKD + β · NCKD)`` (Zhao et al., CVPR 2022), a mean over positions that are no padding.

    ``dis_head: gtc``: the target of a position is its character in the label, as in PaddleOCR's
    ``DistillationDKDLoss``; positions behind ``</s>`` do not count.

    ``dis_head: ctc``: the label does not say which frame shows what, so the target of a frame is what the
    teacher reads there, blank or character. TCKD then teaches how sure the teacher is, NCKD what else it
    might be (the look-alikes). Frames count, and sub-models with different numbers of frames are aligned,
    as in :class:`CTCFrameKDLoss`.

    The teacher gets no gradient. No position that counts: 0.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: as :class:`PairLoss` has it.
        multi_head: likewise; False: ``dis_head`` says what the only head is.
        dis_head: ``gtc`` or ``ctc``.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        alpha: weight of TCKD.
        beta: weight of NCKD.
        blank_weight: for ``ctc``: weight of the frames where the teacher reads a blank, not negative.
        skip_padding: for ``ctc``: blanks beyond valid_ratio do not count.

    Raises:
        ConfigError: an option cannot be used, or an output is not among the predictions.
        ModelError: the outputs do not fit each other or the label.
    """

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
        super().__init__(model_name_pairs, key, multi_head, dis_head, name, heads=("gtc", "ctc"))
        self.temperature = number(temperature, "MaskedDKDLoss: temperature", above=0.0)
        self.alpha = number(alpha, "MaskedDKDLoss: alpha")
        self.beta = number(beta, "MaskedDKDLoss: beta")
        self.blank_weight = number(blank_weight, "MaskedDKDLoss: blank_weight", least=0.0)
        self.skip_padding = skip_padding

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """From logits [B, N, C]: a scalar."""
        if self.dis_head == "ctc":
            return self._frames(student, teacher, batch)
        same_positions(student, teacher, self.path.owner)
        reduced = head_batch(batch, self.dis_head, self.multi_head, self.path.owner)
        targets = sequence_targets(reduced, student.shape[1], self.path.owner)
        return self._mean(student, teacher.detach() / self.temperature, targets, targets != PAD)

    def _frames(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        frames = student.shape[1]
        if teacher.shape[1] == frames:
            scaled = teacher.detach() / self.temperature
        else:
            scaled = teacher_frames(teacher, frames, self.temperature).clip(min=TINY).log()
        reading = scaled.argmax(axis=-1)
        weights = frame_weights(reading, batch, self.multi_head, self.blank_weight, self.skip_padding)
        return self._mean(student, scaled, reading, weights)

    def _mean(
        self, student: paddle.Tensor, teacher: paddle.Tensor, targets: paddle.Tensor, weights: paddle.Tensor
    ) -> paddle.Tensor:
        """Weighted mean over positions; ``teacher`` is at the temperature already, targets are [B, N]."""
        target_part, other_part = dkd_rows(
            student.flatten(0, 1) / self.temperature, teacher.flatten(0, 1), targets.reshape([-1])
        )
        rows = self.alpha * target_part + self.beta * other_part
        return weighted_mean(rows, weights.reshape([-1])) * self.temperature**2
