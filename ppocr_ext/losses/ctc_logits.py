"""PaddleOCR's distillation of CTC probabilities averaged over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from ppocr_ext.losses.distillation import PairLoss
from ppocr_ext.losses.outputs import OutputPath
from ppocr_ext.losses.targets import PAD as BLANK
from ppocr_ext.registry import LOSSES

TEMPERATURE = 0.5
_EPSILON = 1e-6


@LOSSES.register()
class DistillCTCLogits(PairLoss):
    """KL divergence of the two sub-models' CTC probabilities, each averaged over all frames of a line.

    ``Σ_c q log((q + ε)/(p + ε) + ε)``, the mean over lines, with q the teacher's and p the student's mean
    of softmax at temperature 0.5. Sub-models of different numbers of frames can be compared.

    Kept for parity: the blank logit of both is multiplied by -1, so that a sure blank becomes a sure
    non-blank, and which frame reads which character is averaged away. :class:`CTCFrameKDLoss` compares
    frame by frame. Unlike PaddleOCR it leaves its inputs as they are.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: entry of a sub-model's output; None: the output itself is the logits.
        name: logged as ``NAME_INDEX``.
        reduction: accepted and without effect, as in PaddleOCR.
        inner_key: entry under ``key``; None: none (a single head).
    """

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        name: str = "ctc_logits",
        reduction: str = "mean",
        inner_key: str | None = "ctc",
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head=key is not None, dis_head="ctc", name=name)
        head = inner_key if key is not None else None
        self.path = OutputPath(self.path.owner, key, head, kinds=("ctc",))

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """From logits [B, T, C] and [B, T', C]; the batch is not looked at."""
        p, q = _mean_probabilities(student), _mean_probabilities(teacher)
        divergence = q * ((q + _EPSILON) / (p + _EPSILON) + _EPSILON).log()
        return divergence.sum() / student.shape[0]


def _mean_probabilities(logits: paddle.Tensor) -> paddle.Tensor:
    """``[B, T, C] → [B, C]``, the sign of the blank logit flipped."""
    factors = paddle.full([logits.shape[-1]], 1.0 / TEMPERATURE, dtype=logits.dtype)
    factors[BLANK] = -1.0 / TEMPERATURE
    return F.softmax(logits * factors, axis=-1).mean(axis=1)
