"""Distillation of a CTC head, frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from ppocr_ext.losses.base import number
from ppocr_ext.losses.distillation import PairLoss
from ppocr_ext.losses.frames import frame_weights, teacher_frames
from ppocr_ext.losses.functional import TINY, cross_entropy_rows, weighted_mean
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class CTCFrameKDLoss(PairLoss):
    """``τ² · Σ_t w_t KL(q_t ‖ p_t) / Σ_t w_t`` over the frames of all lines of the batch.

    q and p are the teacher's and the student's softmax at temperature τ (Hinton et al., 2015: τ² keeps the
    gradient's size); the teacher gets no gradient. Where the two have different numbers of frames, the
    teacher's probabilities are interpolated to the student's. w is ``blank_weight`` where the teacher reads
    a blank and 1 elsewhere; blanks beyond ``valid_ratio`` (padding to the right of the line) do not count.
    No frame that counts: 0.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``, CTC logits [B, T, C] and [B, T', C].
        key: as :class:`PairLoss` has it.
        multi_head: likewise.
        name: logged as ``NAME_INDEX``.
        temperature: τ, greater than 0.
        blank_weight: not negative. Most frames are blank: less than 1 lets the characters be heard.
        skip_padding: False: the padding's blanks count like others.
    """

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        multi_head: bool = False,
        name: str = "ctc_frame_kd",
        temperature: float = 1.0,
        blank_weight: float = 1.0,
        skip_padding: bool = True,
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, "ctc", name, heads=("ctc",))
        self.temperature = number(temperature, "CTCFrameKDLoss: temperature", above=0.0)
        self.blank_weight = number(blank_weight, "CTCFrameKDLoss: blank_weight", least=0.0)
        self.skip_padding = skip_padding

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """A scalar; the batch is asked for its valid_ratio only."""
        probabilities = teacher_frames(teacher, student.shape[1], self.temperature)
        information = (probabilities * probabilities.clip(min=TINY).log()).sum(axis=-1)
        divergence = information + cross_entropy_rows(student / self.temperature, probabilities)
        reading = probabilities.argmax(axis=-1)
        weights = frame_weights(reading, batch, self.multi_head, self.blank_weight, self.skip_padding)
        return weighted_mean(divergence, weights) * self.temperature**2
