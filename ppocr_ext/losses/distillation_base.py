"""Base classes of the losses on the sub-models of a DistillationModel, and the path to their outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError, ModelError
from ppocr_ext.losses.base_loss import (
    HEADS,
    OUTPUTS,
    Loss,
    OutputRef,
    Parts,
    check_option,
    head_batch,
    required_outputs,
    sequence_targets,
    to_logits,
    with_total,
)

# Which output each key of BaseModel's result holds; the entries of the head's own result are in HEADS.
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
        kinds: what that one output may be, so that everything the loss may need is computed.
    """

    owner: str
    key: str | None
    head: str | None
    kinds: Sequence[str] = HEADS

    def find(self, predicts: Any, model: str) -> Any:
        """Return the output of the sub-model ``model``.

        Raises:
            ConfigError: it is missing; the message names the loss, the output, and what was found.
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
        return output

    def describe(self, model: str) -> str:
        """Return the path for messages: ``DistillationDKDLoss: Student.head_out.gtc``."""
        return f"{self.owner}: {'.'.join(part for part in (model, self.key, self.head) if part)}"

    def required_outputs(self, model: str) -> set[OutputRef]:
        """Return what the sub-model has to compute for :meth:`find`."""
        if self.head is not None:
            return {(model, _OUTPUT_OF_KEY.get(self.head, self.head))}
        if self.key in (None, "head_out"):
            return {(model, kind) for kind in self.kinds}
        if self.key in _OUTPUT_OF_KEY:
            return {(model, _OUTPUT_OF_KEY[self.key])}
        return {(model, kind) for kind in OUTPUTS}


class SubModelLoss(Loss):
    """Compute the loss against the labels of each listed sub-model separately.

    Args:
        make_loss: builds the loss of the sub-model of a name.
        head: the branch of a MultiHead that it needs.
        model_name_list: the sub-models.
        key: entry of a sub-model's output, ``head_out``; None if it returns only its head's output.
        multi_head: the sub-models have a MultiHead.
        name: the values are logged as ``NAME_MODEL_INDEX``.

    Attributes:
        losses: the loss of each sub-model.

    Raises:
        ConfigError: when built, ``model_name_list`` is not a list of names; when called, a sub-model, key or
            head is not among the predictions.
    """

    def __init__(
        self,
        make_loss: Callable[[str], Loss],
        head: str,
        model_name_list: Sequence[str],
        key: str | None,
        multi_head: bool,
        name: str,
    ) -> None:
        super().__init__()
        self.head = head
        self.path = OutputPath(type(self).__name__, key, head if multi_head else None, kinds=(head,))
        self.multi_head = multi_head
        self.name = name
        if not _is_name_list(model_name_list) or not model_name_list:
            raise ConfigError(
                f"{self.path.owner}: model_name_list must be a list of sub-models, such as [Student], but is "
                f"{model_name_list!r}.",
                code="bad_value",
            )
        self.losses: dict[str, Loss] = {model: make_loss(model) for model in model_name_list}
        for model, loss in self.losses.items():
            self.add_sublayer(model, loss)

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return ``{NAME_MODEL_INDEX: scalar, …, "loss": their sum}``."""
        reduced = head_batch(batch, self.head, self.multi_head, self.path.owner)
        parts: Parts = {}
        for index, (model, loss) in enumerate(self.losses.items()):
            output = self.path.find(predicts, model)
            parts[f"{self.name}_{model}_{index}"] = loss(output, reduced)["loss"]
        return with_total(parts)

    def required_outputs(self) -> set[OutputRef]:
        """Return what the loss of each sub-model requires; the head's output is the one on the path."""
        found: set[OutputRef] = set()
        for model, loss in self.losses.items():
            others = {kind for _, kind in required_outputs(loss) or () if kind not in HEADS}
            found |= self.path.required_outputs(model) | {(model, kind) for kind in others}
        return found


class PairLoss(Loss):
    """Compute a loss between the same output of two sub-models, for each pair.

    Args:
        model_name_pairs: ``[[Student, Teacher], …]``, or one pair alone.
        key: entry of a sub-model's output, ``head_out``; None if it returns only its head's output.
        multi_head: the sub-models have a MultiHead.
        dis_head: the branch of the MultiHead: ``ctc``, ``gtc`` or ``sar``.
        name: the values are logged as ``NAME_INDEX``.
        heads: the branches that ``dis_head`` may name.

    Attributes:
        symmetric: the order of a pair does not matter: both are taught.
        detaches: the second of a pair gets no gradient.

    Raises:
        ConfigError: when built, an option cannot be used; when called, a sub-model, key or head is not among
            the predictions.
        ModelError: the shapes of the two outputs do not match.
    """

    symmetric = False
    detaches = False

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
        one = _is_name_list(model_name_pairs) and model_name_pairs  # a pair alone
        pairs: Any = [model_name_pairs] if one else model_name_pairs
        is_list = isinstance(pairs, Sequence) and not isinstance(pairs, str)
        if (
            not is_list
            or not pairs
            or not all(_is_name_list(p) and len(p) == 2 and p[0] != p[1] for p in pairs)
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
            ModelError: they do not; the message names the key that makes them equal, and a loss that aligns frames.
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
        """Return one scalar for each pair, and ``"loss"``: their sum."""
        parts: Parts = {}
        for index, pair in enumerate(self.pairs):
            student, teacher = self.tensors(predicts, pair)
            parts[self.logged_as(index, pair)] = self.compare(student, teacher, batch)
        return with_total(parts)

    def required_outputs(self) -> set[OutputRef]:
        """Return the compared output of each sub-model of each pair."""
        return set().union(*(self.path.required_outputs(model) for pair in self.pairs for model in pair))


def _is_name_list(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return is_list and all(isinstance(entry, str) for entry in value)
