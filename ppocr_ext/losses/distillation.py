"""Bases of the losses on the sub-models of a DistillationModel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ModelError
from ppocr_ext.losses.base import HEADS, Loss, Parts, Read, one_of, to_logits, with_total
from ppocr_ext.losses.outputs import OutputPath, model_names, model_pairs
from ppocr_ext.losses.targets import head_batch


class SubModelLoss(Loss):
    """A loss against the labels, for each sub-model by itself.

    Args:
        single: the loss of one model.
        head: the branch of a MultiHead that it reads.
        model_name_list: the sub-models.
        key: entry of a sub-model's output, ``head_out``; None where it gives its head's output alone.
        multi_head: the sub-models have a MultiHead.
        name: how the values are logged: ``NAME_MODEL_INDEX``.

    Raises:
        ConfigError: when built, ``model_name_list`` is no list of names; when called, a sub-model, key or
            head is not among the predictions.
    """

    def __init__(
        self,
        single: Loss,
        head: str,
        model_name_list: Sequence[str],
        key: str | None,
        multi_head: bool,
        name: str,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        self.single = single
        self.head = head
        self.models = model_names(model_name_list, owner)
        self.path = OutputPath(owner, key, head if multi_head else None, kinds=(head,))
        self.multi_head = multi_head
        self.name = name

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """``{NAME_MODEL_INDEX: scalar, …, "loss": their sum}``."""
        reduced = head_batch(batch, self.head, self.multi_head, self.path.owner)
        parts: Parts = {}
        for index, model in enumerate(self.models):
            output = self.path.find(predicts, model)
            parts[f"{self.name}_{model}_{index}"] = self.single(output, reduced)["loss"]
        return with_total(parts)

    def reads(self) -> set[Read]:
        """The head's output of each listed sub-model."""
        return set().union(*(self.path.reads(model) for model in self.models))


class PairLoss(Loss):
    """A loss between the same output of two sub-models, for each pair.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``, or one pair alone.
        key: entry of a sub-model's output, ``head_out``; None where it gives its head's output alone.
        multi_head: the sub-models have a MultiHead.
        dis_head: the branch of the MultiHead: ``ctc``, ``gtc`` or ``sar``.
        name: how the values are logged: ``NAME_INDEX``.

    Raises:
        ConfigError: when built, an option cannot be used; when called, a sub-model, key or head is not among
            the predictions.
        ModelError: the two outputs do not fit each other.
    """

    def __init__(
        self,
        model_name_pairs: Sequence[Any],
        key: str | None,
        multi_head: bool,
        dis_head: str,
        name: str,
        heads: Sequence[str] = HEADS,
    ) -> None:
        super().__init__()
        owner = type(self).__name__
        self.pairs = model_pairs(model_name_pairs, owner)
        self.dis_head = one_of(dis_head, heads, f"{owner}: dis_head")
        self.path = OutputPath(owner, key, dis_head if multi_head else None)
        self.multi_head = multi_head
        self.name = name

    @abstractmethod
    def compare(
        self, student: paddle.Tensor, teacher: paddle.Tensor, batch: Sequence[paddle.Tensor]
    ) -> paddle.Tensor:
        """The loss of one pair, a scalar, from the batch as the loader gives it."""

    def tensors(self, predicts: Any, pair: tuple[str, str]) -> tuple[paddle.Tensor, paddle.Tensor]:
        """The outputs of both sub-models: logits [B, N, C] with the same classes."""
        student, teacher = (
            to_logits(self.path.find(predicts, model), self.path.describe(model)) for model in pair
        )
        if student.shape[0] != teacher.shape[0] or student.shape[-1] != teacher.shape[-1]:
            raise ModelError(
                f"{self.path.describe(pair[0])} has the shape {list(student.shape)}, "
                f"that of {pair[1]} {list(teacher.shape)}: lines (first) and classes (last) must be equal. "
                f"Were both made for the same dictionary?"
            )
        return student, teacher

    def logged_as(self, index: int, pair: tuple[str, str]) -> str:
        """The name under which the value of a pair is logged."""
        return f"{self.name}_{index}"

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """One scalar for each pair, and ``"loss"``: their sum."""
        parts: Parts = {}
        for index, pair in enumerate(self.pairs):
            student, teacher = self.tensors(predicts, pair)
            parts[self.logged_as(index, pair)] = self.compare(student, teacher, batch)
        return with_total(parts)

    def reads(self) -> set[Read]:
        """The compared output of each sub-model of each pair."""
        return set().union(*(self.path.reads(model) for pair in self.pairs for model in pair))


def same_positions(student: paddle.Tensor, teacher: paddle.Tensor, owner: str) -> None:
    """Check that both logits have as many positions.

    Raises:
        ModelError: they have not; the message names a loss that aligns frames.
    """
    if student.shape != teacher.shape:
        raise ModelError(
            f"{owner}: {student.shape[1]} positions of the student, {teacher.shape[1]} of the teacher. "
            f"Between CTC heads of different width use CTCFrameKDLoss, which aligns their frames."
        )
