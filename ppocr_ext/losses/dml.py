"""Deep mutual learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base import one_of
from ppocr_ext.losses.distillation import PairLoss, same_positions
from ppocr_ext.registry import LOSSES

_EPSILON = 1e-10
_EPSILON_RATIO = 1e-5


@LOSSES.register()
class DistillationDMLLoss(PairLoss):
    """``(KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)) / 2`` of two sub-models (Zhang et al., CVPR 2018), gradients for both.

    With ``use_log`` (recognition): summed over positions and classes, divided by the number of lines, with
    p the activation plus 1e-10. Kept for parity: positions of padding count (``dis_head: gtc`` too), and
    longer lines weigh more. Without ``use_log`` (PaddleOCR's form for detection maps): averaged over
    positions, classes and lines; PaddleOCR gives one value a line instead of a scalar.

    Args:
        model_name_pairs: ``[[Student, Student2], …]``.
        act: ``softmax``, ``sigmoid``, or None where the outputs are probabilities already.
        use_log: see above.
        key: as :class:`PairLoss` has it.
        multi_head: likewise.
        dis_head: ``ctc``, ``gtc`` or ``sar``.
        maps_name: only None: maps of detection are no part of this package.
        name: logged as ``NAME_INDEX``.
    """

    def __init__(
        self,
        model_name_pairs: Sequence[Any] = (),
        act: str | None = None,
        use_log: bool = False,
        key: str | None = None,
        multi_head: bool = False,
        dis_head: str = "ctc",
        maps_name: Any = None,
        name: str = "dml",
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head, dis_head, name)
        if maps_name is not None:
            raise ConfigError(
                "DistillationDMLLoss: `maps_name` is for detection. Take it out for recognition."
            )
        self.act = one_of(act, (None, "softmax", "sigmoid"), "DistillationDMLLoss: act")
        self.use_log = use_log

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """From outputs [B, N, C]; the batch is not looked at."""
        same_positions(student, teacher, self.path.owner)
        first, second = self._activated(student), self._activated(teacher)
        if not self.use_log:
            ratio = (first + _EPSILON_RATIO) / (second + _EPSILON_RATIO)
            divergence = (
                first * (ratio + _EPSILON_RATIO).log() + second * (1.0 / ratio + _EPSILON_RATIO).log()
            )
            return divergence.mean() / 2.0
        divergence = second * ((second + _EPSILON).log() - first.log())
        divergence = divergence + first * ((first + _EPSILON).log() - second.log())
        return divergence.sum() / (2.0 * student.shape[0])

    def _activated(self, output: paddle.Tensor) -> paddle.Tensor:
        if self.act is None:
            return output
        activated = F.softmax(output, axis=-1) if self.act == "softmax" else F.sigmoid(output)
        return activated + _EPSILON
