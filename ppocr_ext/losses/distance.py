"""Distance of two sub-models' outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from ppocr_ext.errors import ModelError
from ppocr_ext.losses.base import number, one_of, to_tensor
from ppocr_ext.losses.distillation import PairLoss
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationDistanceLoss(PairLoss):
    """L1, L2 or smooth L1 distance of the same output of two sub-models; gradients for both.

    L2 of features is the hint of FitNets (Romero et al., ICLR 2015); smooth L1 is that of Fast R-CNN (Girshick,
    ICCV 2015).

    Kept for parity: whatever ``mode`` is, it is logged as ``NAME_l2_MODEL_MODEL_INDEX``.

    Args:
        mode: ``l1``, ``l2`` or ``smooth_l1``.
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: ``backbone_out``, ``neck_out`` or ``head_out`` (of a single head).
        name: see above.
        reduction: ``mean`` or ``sum`` over all entries.
        delta: where ``smooth_l1`` turns from square to straight, greater than 0.

    Raises:
        ConfigError: an option cannot be used, or an output is not among the predictions.
        ModelError: the outputs are of different shape.
    """

    def __init__(
        self,
        mode: str = "l2",
        model_name_pairs: Sequence[Any] = (),
        key: str | None = None,
        name: str = "loss_distance",
        reduction: str = "mean",
        delta: float = 1.0,
    ) -> None:
        super().__init__(model_name_pairs, key, multi_head=False, dis_head="ctc", name=f"{name}_l2")
        self.mode = one_of(mode, ("l1", "l2", "smooth_l1"), "DistillationDistanceLoss: mode")
        self.reduction = one_of(reduction, ("mean", "sum"), "DistillationDistanceLoss: reduction")
        self.delta = number(delta, "DistillationDistanceLoss: delta", above=0.0)

    def logged_as(self, index: int, pair: tuple[str, str]) -> str:
        """``NAME_l2_MODEL_MODEL_INDEX``."""
        return f"{self.name}_{pair[0]}_{pair[1]}_{index}"

    def tensors(self, predicts: Any, pair: tuple[str, str]) -> tuple[paddle.Tensor, paddle.Tensor]:
        """The outputs of both sub-models, of equal shape."""
        student, teacher = (
            to_tensor(self.path.find(predicts, model), self.path.describe(model)) for model in pair
        )
        if student.shape != teacher.shape:
            raise ModelError(
                f"{self.path.describe(pair[0])} has the shape {list(student.shape)}, "
                f"that of {pair[1]} {list(teacher.shape)}: a distance needs equal shapes."
            )
        return student, teacher

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """A scalar; the batch is not looked at."""
        if self.mode == "l1":
            return F.l1_loss(student, teacher, self.reduction)
        if self.mode == "l2":
            return F.mse_loss(student, teacher, self.reduction)
        return F.smooth_l1_loss(student, teacher, self.reduction, self.delta)
