"""Compare the same output of two sub-models: KL divergence, mutual learning, and distances of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.losses.base_loss import PAD, check_option, to_tensor
from ppocr_ext.losses.distillation_base import EQUAL_FRAMES, PairLoss
from ppocr_ext.losses.functional import kl_rows, weighted_mean
from ppocr_ext.registry import LOSSES

_EPSILON = 1e-10
_EPSILON_RATIO = 1e-5


@LOSSES.register()
class DistillationKLDivLoss(PairLoss):
    """Compute KL(teacher ‖ student) of the softmax of logits [B, N, C] (Hinton et al., 2015, temperature 1).

    Averaged over all positions but padding (``multi_head``, ``dis_head: gtc``) or over all frames
    (``dis_head: ctc``, on which PaddleOCR fails, since it applies the decoder's mask). Kept for parity: without
    ``multi_head`` it is summed over positions and divided by the number of lines, for any head.
    :class:`CTCFrameKDLoss` has a temperature, different numbers of frames, and a weight of blanks.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``.
        key, multi_head: as in :class:`PairLoss`.
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

    def needs_all_classes(self) -> bool:
        """Return True without ``multi_head``, where padding counts and positions add up."""
        return not self.multi_head

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return a scalar; the class describes what is averaged."""
        self.same_positions(student, teacher)
        rows = kl_rows(student, teacher)
        if not self.multi_head:
            return rows.sum() / student.shape[0]
        if self.dis_head == "ctc":
            return rows.mean()
        return weighted_mean(rows, self.targets(student, teacher, batch) != PAD)


@LOSSES.register()
class DistillationDMLLoss(PairLoss):
    """Compute ``(KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)) / 2`` of two sub-models (Zhang et al., CVPR 2018), gradients for both.

    With ``use_log`` (recognition): summed over positions and classes, divided by the number of lines, with
    p the activation plus 1e-10. Kept for parity: positions of padding count (``dis_head: gtc`` too), and
    longer lines weigh more. Without ``use_log`` (PaddleOCR's form for detection maps): averaged over
    positions, classes and lines; PaddleOCR returns one value a line instead of a scalar.

    Args:
        model_name_pairs: ``[[Student, Student2], …]``.
        act: ``softmax``, ``sigmoid``, or None if the outputs are probabilities already.
        use_log: see above.
        key, multi_head: as in :class:`PairLoss`.
        dis_head: ``ctc``, ``gtc`` or ``sar``.
        maps_name: only None: detection maps are not supported.
        name: logged as ``NAME_INDEX``.
    """

    symmetric = True

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
                "DistillationDMLLoss: `maps_name` is for detection. Fix: remove it for recognition.",
                code="unsupported_key",
            )
        if act is not None:
            check_option(act, "DistillationDMLLoss: act", "text", choices=("softmax", "sigmoid"))
        self.act = act
        self.use_log = use_log

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Compare outputs [B, N, C]; the batch is not used."""
        self.same_positions(student, teacher)
        first = self._activated(student)
        second = self._activated(teacher)
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


@LOSSES.register()
class DistillationDistanceLoss(PairLoss):
    """Compute the L1, L2 or smooth L1 distance of the same output of two sub-models; gradients for both.

    L2 of features is the hint of FitNets (Romero et al., ICLR 2015); smooth L1 is that of Fast R-CNN (Girshick,
    ICCV 2015).

    Kept for parity: for every ``mode`` it is logged as ``NAME_l2_MODEL_MODEL_INDEX``.

    Args:
        mode: ``l1``, ``l2`` or ``smooth_l1``.
        model_name_pairs: ``[[Student, Teacher], …]``.
        key: ``backbone_out``, ``neck_out`` or ``head_out`` (of a single head).
        name: see above.
        reduction: ``mean`` or ``sum`` over all entries.
        delta: where ``smooth_l1`` changes from square to straight, greater than 0.

    Raises:
        ConfigError: an option cannot be used, or an output is not among the predictions.
        ModelError: the outputs have different shapes.
    """

    symmetric = True

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
        self.mode = check_option(
            mode, "DistillationDistanceLoss: mode", "text", choices=("l1", "l2", "smooth_l1")
        )
        self.reduction = check_option(
            reduction, "DistillationDistanceLoss: reduction", "text", choices=("mean", "sum")
        )
        self.delta = check_option(delta, "DistillationDistanceLoss: delta", above=0.0)

    def logged_as(self, index: int, pair: tuple[str, str]) -> str:
        """Return ``NAME_l2_MODEL_MODEL_INDEX``."""
        return f"{self.name}_{pair[0]}_{pair[1]}_{index}"

    def tensors(self, predicts: Any, pair: tuple[str, str]) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the outputs of both sub-models, of equal shape."""
        student, teacher = (
            to_tensor(self.path.find(predicts, model), self.path.describe(model)) for model in pair
        )
        if student.shape != teacher.shape:
            raise ModelError(
                f"{self.path.describe(pair[0])} has the shape {list(student.shape)}, "
                f"that of {pair[1]} {list(teacher.shape)}: a distance needs equal shapes. Fix: compare another output; "
                f"if only the frames differ, {EQUAL_FRAMES}.",
                code="shape_mismatch",
            )
        return student, teacher

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return a scalar; the batch is not used."""
        if self.mode == "l1":
            return F.l1_loss(student, teacher, self.reduction)
        if self.mode == "l2":
            return F.mse_loss(student, teacher, self.reduction)
        return F.smooth_l1_loss(student, teacher, self.reduction, self.delta)
