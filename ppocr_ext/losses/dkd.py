"""Decoupled knowledge distillation as PaddleOCR computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base import number
from ppocr_ext.losses.distillation import PairLoss, same_positions
from ppocr_ext.losses.functional import dkd_rows
from ppocr_ext.losses.targets import head_batch, sequence_targets
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationDKDLoss(PairLoss):
    """``τ² · (α · TCKD + β · NCKD)`` between the decoders of two sub-models (Zhao et al., CVPR 2022).

    TCKD is the KL divergence of (target character, all others), NCKD that among the other characters,
    teacher against student, both at temperature τ, averaged over all positions.

    Kept for parity: positions of padding count as characters of class 0 (PaddleOCR computes a mask and
    ignores it). :class:`MaskedDKDLoss` leaves them out. CTC frames have no target character, and PaddleOCR
    fails on ``dis_head: ctc``: it is refused here, MaskedDKDLoss has a formulation.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: as :class:`PairLoss` has it.
        multi_head: likewise; False: the only head is the decoder, and the batch ``[image, label, length]``.
        dis_head: ``gtc``.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        alpha: weight of TCKD.
        beta: weight of NCKD.

    Raises:
        ConfigError: ``dis_head`` is ``ctc``, the default as in PaddleOCR, or another option cannot be used.
        ModelError: the outputs do not fit each other or the label.
    """

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
        if dis_head == "ctc":
            raise ConfigError(
                "DistillationDKDLoss: `dis_head: ctc` has no target character for a frame. "
                "Set `dis_head: gtc`, or use MaskedDKDLoss, which takes the teacher's reading as the target."
            )
        self.temperature = number(temperature, "DistillationDKDLoss: temperature", above=0.0)
        self.alpha = number(alpha, "DistillationDKDLoss: alpha")
        self.beta = number(beta, "DistillationDKDLoss: beta")

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Mean over all positions of logits [B, N, C]."""
        same_positions(student, teacher, self.path.owner)
        reduced = head_batch(batch, self.dis_head, self.multi_head, self.path.owner)
        targets = sequence_targets(reduced, student.shape[1], self.path.owner)
        target_part, other_part = dkd_rows(
            student.flatten(0, 1) / self.temperature,
            teacher.flatten(0, 1) / self.temperature,
            targets.reshape([-1]),
        )
        both = self.alpha * target_part.mean() + self.beta * other_part.mean()
        return both * self.temperature**2
