"""KL divergence of two sub-models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from ppocr_ext.losses.distillation import PairLoss, same_positions
from ppocr_ext.losses.functional import kl_rows, weighted_mean
from ppocr_ext.losses.targets import PAD, head_batch, sequence_targets
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationKLDivLoss(PairLoss):
    """KL(teacher ‖ student) of softmax over the classes, from logits [B, N, C] (Hinton et al., 2015, temperature 1).

    Averaged over the positions that are no padding (``multi_head``, ``dis_head: gtc``) or over all frames
    (``dis_head: ctc``, where PaddleOCR fails, since it applies the decoder's mask). Kept for parity: without
    ``multi_head`` it is summed over positions and divided by the number of lines, whatever the head. For a
    temperature, frames of different number, or the weight of blanks see :class:`CTCFrameKDLoss`.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: as :class:`PairLoss` has it.
        multi_head: likewise.
        dis_head: ``ctc`` or ``gtc``.
        name: logged as ``NAME_INDEX``.
    """

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        multi_head: bool = False,
        dis_head: str = "ctc",
        name: str = "kl_div",
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, dis_head, name, heads=("ctc", "gtc"))

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """See the class for what is averaged."""
        same_positions(student, teacher, self.path.owner)
        rows = kl_rows(student, teacher)
        if not self.multi_head:
            return rows.sum() / student.shape[0]
        if self.dis_head == "ctc":
            return rows.mean()
        reduced = head_batch(batch, self.dis_head, self.multi_head, self.path.owner)
        targets = sequence_targets(reduced, student.shape[1], self.path.owner)
        return weighted_mean(rows, targets != PAD)
