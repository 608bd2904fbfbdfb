"""The base class of losses, and functions that read options, outputs and batches for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.config.global_keys import Kind, Problem, ValueRule
from ppocr_ext.data.batches import MULTI, SINGLE
from ppocr_ext.errors import ConfigError, ModelError

OutputRef = tuple[str | None, str]  # (sub-model or None for a model without sub-models, one of OUTPUTS)
Parts = dict[str, paddle.Tensor]

HEADS = ("ctc", "gtc", "sar")
OUTPUTS = (*HEADS, "neck", "backbone")
FEATURES = "features"  # the input of the CTC classifier; a head returns it only if a loss requires it
_HALF = (paddle.bfloat16, paddle.float16)
PAD = 0  # class id of NRTR's padding, and of the CTC blank
_MULTI_HEAD = "[image, label_ctc, label_gtc, length, valid_ratio]"
_SINGLE_HEAD = "[image, label, length]"


@dataclass(frozen=True)
class LossContext:
    """The facts of a run for the losses; passed to each constructor that takes ``context``.

    Attributes:
        charset: the dictionary.
        feature_sizes: number of features of the CTC head, by sub-model. The name is None in a model without
            sub-models.
    """

    charset: Charset
    feature_sizes: Mapping[str | None, int]

    def feature_size(self, sub_model: str | None) -> int:
        """Return the number of features of a sub-model's CTC head.

        Raises:
            ModelError: it has no CTC head.
        """
        if sub_model not in self.feature_sizes:
            name = "the model" if sub_model is None else sub_model
            names = ", ".join(filter(None, self.feature_sizes)) or "none"
            raise ModelError(
                f"Center loss needs a CTCHead, alone or in a MultiHead, but {name} has none (sub-models with one: "
                f"{names}).",
                code="no_ctc_head",
            )
        return self.feature_sizes[sub_model]


class Loss(nn.Layer, ABC):
    """A loss: ``loss(predicts, batch) → {part: scalar, …, "loss": their sum}``.

    ``batch`` is PaddleOCR's list: ``[image, label, length, …]`` of a single head and
    ``[image, label_ctc, label_gtc, length, valid_ratio]`` of a MultiHead.
    """

    requires: Sequence[str] | None = None  # outputs that a loss of a model without sub-models requires
    reads_labels = True  # so that samples without a label have no part in it

    @abstractmethod
    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Return the named parts, and under ``"loss"`` their sum, each a scalar float32 tensor."""

    def required_outputs(self) -> set[OutputRef] | None:
        """Return the outputs that the loss requires, as (sub-model, output); None if unknown.

        The sub-model is None in a model without sub-models. The output is one of ``ctc``, ``gtc``, ``sar``, ``neck``,
        ``backbone``, ``features`` (the input of the CTC classifier).
        """
        return None if self.requires is None else {(None, output) for output in self.requires}

    def needs_all_classes(self) -> bool:
        """Return False if the teacher's most probable classes and the mean of the others give the loss within 1e-3.

        A teacher cache then keeps only these (``teacher_cache/``). True is always safe.
        """
        return True


def required_outputs(loss: Callable[..., Any]) -> set[OutputRef] | None:
    """Return the outputs that any kind of ``loss`` requires; None if unknown."""
    method = getattr(loss, "required_outputs", None)
    return None if method is None else method()


def reads_labels(loss: Callable[..., Any]) -> bool:
    """Return whether any kind of ``loss`` reads labels; True if unknown."""
    return getattr(loss, "reads_labels", True)


def with_total(parts: Parts) -> Parts:
    """Return ``parts`` and, under ``"loss"``, their sum."""
    first, *others = parts.values()
    return {**parts, "loss": sum(others, first)}


def to_tensor(output: Any, where: str) -> paddle.Tensor:
    """Return the tensor for a loss in float32 if it has 16 bits; of ``(features, logits)``, the logits.

    Raises:
        ConfigError: the output is a mapping, as that of a MultiHead.
        ModelError: the output is not a tensor.
    """
    if isinstance(output, (tuple, list)) and output:
        output = output[-1]
    if isinstance(output, Mapping):
        raise ConfigError(
            f"{where} holds several outputs ({', '.join(map(str, output))}), as a MultiHead returns them. "
            f"Fix: for a single model, put the loss into a MultiLoss; for sub-models, set `multi_head: true`.",
            code="wrong_output",
        )
    if not isinstance(output, paddle.Tensor):
        raise ModelError(f"{where} must be a tensor, but is {type(output).__name__}.", code="wrong_output")
    return output.astype("float32") if output.dtype in _HALF else output


def to_logits(output: Any, where: str) -> paddle.Tensor:
    """Return logits [B, N, C] as :func:`to_tensor` does.

    Raises:
        ModelError: the tensor does not have three axes.
    """
    logits = to_tensor(output, where)
    if logits.ndim != 3:
        raise ModelError(
            f"{where} must be [batch, positions, classes], but has the shape {list(logits.shape)}.",
            code="shape_mismatch",
        )
    return logits


def check_option(value: Any, where: str, kind: Kind = "number", **limits: Any) -> Any:
    """Return an option that a :class:`ValueRule` of ``kind`` and ``limits`` accepts, a number as a float.

    Raises:
        ConfigError: it is null, or the rule does not accept it.
    """
    problem = ValueRule(kind, **limits).problem(value)
    if value is None:
        problem = Problem("bad_value", "found null, expected a value.")
    if problem is not None:
        raise ConfigError(f"{where}: {problem.message}", code=problem.code)
    return float(value) if kind == "number" else value


def head_batch(
    batch: Sequence[paddle.Tensor], head: str, multi_head: bool, where: str
) -> list[paddle.Tensor]:
    """Return the batch for the loss of one head, ``[image, label, length, …]``.

    From a MultiHead's ``[image, label_ctc, label_gtc, length, valid_ratio]``, the label of the other head is removed.

    Raises:
        ConfigError: the batch has too few entries.
    """
    layout, least = (_MULTI_HEAD, 4) if multi_head else (_SINGLE_HEAD, 3)
    if len(batch) < least:
        raise ConfigError(
            f"{where} needs the batch {layout} (found {len(batch)} entries). "
            f"Fix: list them under KeepKeys of Train.dataset.transforms.",
            code="missing_batch_entry",
        )
    if not multi_head:
        return list(batch)
    other = MULTI.second_label if head == "ctc" else MULTI.label
    return [entry for index, entry in enumerate(batch) if index != other]


def sequence_targets(batch: Sequence[paddle.Tensor], rows: int, where: str) -> paddle.Tensor:
    """Return the character that each position of a teacher-forced decoder should predict, int64 [B, rows].

    The label is ``<s> characters </s> padding``; position i should predict entry i + 1. PaddleOCR cuts the label at the
    longest length of the batch. That equals ``rows``, which is known without reading a value from the device.

    Args:
        batch: ``[image, label, length, …]``, label int64 [B, L].
        rows: positions of the decoder's logits.
        where: the loss, for the message.

    Raises:
        ModelError: the label is shorter than the logits.
    """
    _, label, *_ = batch
    if label.ndim != 2 or label.shape[1] < rows + 1:
        raise ModelError(
            f"{where}: {rows} positions of the decoder need a label of at least {rows + 1} entries "
            f"(found shape {list(label.shape)}). Fix: use the same max_text_length in Global and in the head.",
            code="shape_mismatch",
        )
    return label[:, 1 : 1 + rows]


def valid_frames(batch: Sequence[paddle.Tensor], frames: int, multi_head: bool) -> paddle.Tensor | None:
    """Return which frames are not in the padding on the right, bool [B, frames]; None without a valid_ratio.

    Frame i of T is padding if it starts at or after ``valid_ratio · T``.
    """
    position = (MULTI if multi_head else SINGLE).valid_ratio
    if position is None or len(batch) <= position or not batch[position].is_floating_point():
        return None
    ratio = batch[position].astype("float32").reshape([-1, 1])
    return paddle.arange(frames, dtype="float32").unsqueeze(0) < ratio * frames
