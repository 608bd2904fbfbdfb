"""Losses that compare the same output of two sub-models: KL divergence, mutual learning, distances of features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle
import paddle.nn.functional as F

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.losses.base_loss import (
    HEADS,
    OUTPUTS,
    PAD,
    Loss,
    OutputRef,
    Parts,
    check_option,
    head_batch,
    sequence_targets,
    to_logits,
    to_tensor,
    with_total,
)
from ppocr_ext.losses.functional import kl_rows, weighted_mean
from ppocr_ext.registry import LOSSES

# The output under each key of BaseModel's result. The keys of the head's own result are in HEADS.
_OUTPUT_OF_KEY = {"backbone_out": "backbone", "neck_out": "neck", "ctc_neck": "neck"}
EQUAL_FRAMES = "set `train_frames: width` in the Backbone that makes a fixed number of frames in training"
_FIX = {
    "sub-model": "name a model of Architecture.Models in the loss, and use a DistillationModel.",
    "key": "set the loss's `key` to one of these, or the sub-model's `return_all_feats: true`.",
    "head": "set `multi_head: false` if the model has one head, or name a head that it has.",
}


@dataclass(frozen=True)
class OutputPath:
    """The path from a DistillationModel's output to a tensor: sub-model, then ``key``, then ``head``.

    Attributes:
        owner: the loss, as messages call it.
        key: ``head_out``, ``neck_out`` or ``backbone_out``; None if a sub-model returns only its head's output.
        head: entry of a MultiHead's output; None if there is one output only.
        kinds: the outputs of which the result may be any if ``head`` is None; all of them are computed.
    """

    owner: str
    key: str | None
    head: str | None
    kinds: Sequence[str] = HEADS

    def find(self, predicts: Any, model: str) -> Any:
        """Return the output of the sub-model ``model``.

        Raises:
            ConfigError: it is missing; the message has the loss, the output, and the names that exist.
        """
        output = predicts
        where = "the model's output"
        for kind, name in (("sub-model", model), ("key", self.key), ("head", self.head)):
            if name is None:
                continue
            if not isinstance(output, Mapping) or name not in output:
                is_mapping = isinstance(output, Mapping)
                names = (
                    ", ".join(map(str, output)) if is_mapping else f"no mapping, but {type(output).__name__}"
                )
                raise ConfigError(
                    f"{self.owner}: {where} has no {kind} {name!r} (found {names or 'nothing'}). Fix: {_FIX[kind]}",
                    code="missing_output",
                )
            output = output[name]
            where = f"the output of {model!r}" if kind == "sub-model" else f"{where} under {name!r}"
        # An inference model has this output alone, with any `multi_head`.
        return output["ctc"] if isinstance(output, Mapping) and list(output) == ["ctc"] else output

    def describe(self, model: str) -> str:
        """Return the path for messages, such as ``DistillationDKDLoss: Student.head_out.gtc``."""
        return f"{self.owner}: {'.'.join(part for part in (model, self.key, self.head) if part)}"

    def required_outputs(self, model: str) -> set[OutputRef]:
        """Return the outputs that the sub-model must compute for :meth:`find`."""
        if self.head is not None:
            return {(model, _OUTPUT_OF_KEY.get(self.head, self.head))}
        if self.key in (None, "head_out"):
            return {(model, kind) for kind in self.kinds}
        if self.key in _OUTPUT_OF_KEY:
            return {(model, _OUTPUT_OF_KEY[self.key])}
        return {(model, kind) for kind in OUTPUTS}


class PairLoss(Loss):
    """Compute a loss between the same output of two sub-models, for each pair.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``, or one pair ``[Student, Teacher]``.
        key: entry of a sub-model's output, ``head_out``; None if it returns only its head's output.
        multi_head: the sub-models have a MultiHead.
        dis_head: the branch of the MultiHead: ``ctc``, ``gtc`` or ``sar``.
        name: the values are logged as ``NAME_INDEX``.
        heads: the branches that ``dis_head`` may name.

    Attributes:
        symmetric: whether both sub-models of a pair are taught, so that their order does not matter.
        detaches: whether the second sub-model of a pair gets no gradient.
        reads_raw_logits: whether log-probabilities in the place of logits would give another value.

    Raises:
        ConfigError: an option cannot be used (when built), or a sub-model, key or head is not among the predictions
            (when called).
        ModelError: the shapes of the two outputs do not match.
    """

    symmetric = False
    detaches = False
    reads_raw_logits = False

    def __init__(
        self,
        model_name_pairs: Sequence[Any],
        key: str | None,
        multi_head: bool,
        dis_head: str,
        name: str,
        heads: tuple[str, ...] = HEADS,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        one = is_name_list(model_name_pairs) and model_name_pairs  # one pair, not in a list
        pairs: Any = [model_name_pairs] if one else model_name_pairs
        is_list = isinstance(pairs, Sequence) and not isinstance(pairs, str)
        if (
            not is_list
            or not pairs
            or not all(is_name_list(p) and len(p) == 2 and p[0] != p[1] for p in pairs)
        ):
            raise ConfigError(
                f"{owner}: model_name_pairs must be a list of two different sub-models each, "
                f"such as [[Student, Teacher]], but is {model_name_pairs!r}.",
                code="bad_value",
            )
        self.pairs: tuple[tuple[str, str], ...] = tuple((student, teacher) for student, teacher in pairs)
        self.dis_head = check_option(dis_head, f"{owner}: dis_head", "text", choices=heads)
        self.path = OutputPath(owner, key, dis_head if multi_head else None)
        self.multi_head = multi_head
        self.name = name
        self.reads_labels = dis_head != "ctc"  # the other heads read the label in training

    @abstractmethod
    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return the loss of one pair, a scalar; ``batch`` is the loader's."""

    def tensors(self, predicts: Any, pair: tuple[str, str]) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the outputs of both sub-models: logits [B, N, C] with the same classes."""
        student, teacher = (
            to_logits(self.path.find(predicts, model), self.path.describe(model)) for model in pair
        )
        if student.shape[0] != teacher.shape[0] or student.shape[-1] != teacher.shape[-1]:
            raise ModelError(
                f"{self.path.describe(pair[0])} has the shape {list(student.shape)}, "
                f"that of {pair[1]} {list(teacher.shape)}: lines (first) and classes (last) must be equal. "
                f"Fix: use the same dictionary for both.",
                code="shape_mismatch",
            )
        return student, teacher

    def same_positions(self, student: paddle.Tensor, teacher: paddle.Tensor) -> None:
        """Check that both logits have the same number of positions.

        Raises:
            ModelError: the numbers differ; the message names the key that makes them equal.
        """
        if student.shape != teacher.shape:
            raise ModelError(
                f"{self.path.owner}: {student.shape[1]} positions of the student, but {teacher.shape[1]} of the "
                f"teacher. Fix: {EQUAL_FRAMES}, or use CTCFrameKDLoss, which aligns frames.",
                code="shape_mismatch",
            )

    def targets(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return the characters of the label for each position of both decoders, int64 [B, N]."""
        self.same_positions(student, teacher)
        reduced = head_batch(batch, self.dis_head, self.multi_head, self.path.owner)
        return sequence_targets(reduced, student.shape[1], self.path.owner)

    def logged_as(self, index: int, pair: tuple[str, str]) -> str:
        """Return the name under which the value of a pair is logged."""
        return f"{self.name}_{index}"

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return one scalar for each pair, and their sum as ``"loss"``."""
        parts: Parts = {}
        for index, pair in enumerate(self.pairs):
            student, teacher = self.tensors(predicts, pair)
            parts[self.logged_as(index, pair)] = self.compare(student, teacher, batch)
        return with_total(parts)

    def required_outputs(self) -> set[OutputRef]:
        """Return the compared output of each sub-model of each pair."""
        return set().union(*(self.path.required_outputs(model) for pair in self.pairs for model in pair))


def is_name_list(value: Any) -> bool:
    """Return True for a list of strings."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and all(isinstance(entry, str) for entry in value)


_EPSILON = 1e-10
_EPSILON_RATIO = 1e-5


@LOSSES.register()
class DistillationKLDivLoss(PairLoss):
    """Compute KL(teacher ‖ student) of the softmax of logits [B, N, C] (Hinton et al., 2015, temperature 1).

    >>> list(DistillationKLDivLoss([["Student", "Teacher"]], "head_out", True)(predictions, batch))
    ['kl_div_0', 'loss']

    With ``multi_head`` it is the mean over all positions except padding (``dis_head: gtc``) or over all frames
    (``dis_head: ctc``, for which PaddleOCR fails, since it applies the decoder's mask). Kept for parity: without
    ``multi_head`` it is the sum over positions, divided by the number of lines, for any head. :class:`CTCFrameKDLoss`
    has a temperature, different numbers of frames, and a weight of blanks.

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
        """Return True without ``multi_head``, since padding counts then, and positions are summed."""
        return not self.multi_head

    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """Return a scalar, averaged as described above."""
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

    >>> list(DistillationDMLLoss([["Student", "Teacher"]], key="head_out", multi_head=True)(predictions, batch))
    ['dml_0', 'loss']

    With ``use_log`` (recognition) it is the sum over positions and classes, divided by the number of lines; p is the
    activation plus 1e-10. Kept for parity: positions of padding count, also for ``dis_head: gtc``, and longer lines
    weigh more. Without ``use_log`` (PaddleOCR's form for detection maps) it is the mean over positions, classes and
    lines; PaddleOCR returns one value for each line instead.

    Args:
        model_name_pairs: ``[[Student, Student2], …]``.
        act: ``softmax``, ``sigmoid``, or None if the outputs are probabilities already.
        use_log: see above.
        key, multi_head: as in :class:`PairLoss`.
        dis_head: ``ctc``, ``gtc`` or ``sar``.
        maps_name: must be None, since detection maps are not supported.
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

    >>> list(DistillationDistanceLoss("l2", [["Student", "Teacher"]], "backbone_out")(predictions, batch))
    ['loss_distance_l2_Student_Teacher_0', 'loss']

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
    reads_raw_logits = True

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
