"""What all losses share: named parts and their sum, and tensors in float32."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import paddle
from paddle import nn

from ppocr_ext.charset import Charset
from ppocr_ext.errors import ConfigError, ModelError

# (sub-model or None for the only one, one of OUTPUTS)
Read = tuple[str | None, str]
Parts = dict[str, paddle.Tensor]

HEADS = ("ctc", "gtc", "sar")
OUTPUTS = (*HEADS, "neck", "backbone")
FEATURES = "features"  # what the CTC classifier sees; given only where a loss asks for it
_HALF = (paddle.bfloat16, paddle.float16)


class Loss(nn.Layer, ABC):
    """A loss: ``loss(predicts, batch) → {part: scalar, …, "loss": their sum}``.

    ``batch`` is PaddleOCR's list: ``[image, label, length, …]`` of a single head and
    ``[image, label_ctc, label_gtc, length, valid_ratio]`` of a MultiHead.
    """

    @abstractmethod
    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """The named parts, and under ``"loss"`` their sum, each a scalar float32 tensor."""

    @abstractmethod
    def reads(self) -> set[Read] | None:
        """The outputs that the loss reads, as (sub-model, output); None where it cannot be told.

        The sub-model is None for the only one; the output is one of ``ctc``, ``gtc``, ``sar``, ``neck``,
        ``backbone``, ``features`` (what the CTC classifier sees).
        """

    def prepare(self, charset: Charset, feature_sizes: Mapping[str | None, int]) -> None:
        """Learn what the loss works on, before the first step and before its state is loaded.

        Args:
            charset: the dictionary.
            feature_sizes: for each sub-model (None: the only one) whose features are read, how many there are.
        """
        for child in self.children():
            if isinstance(child, Loss):
                child.prepare(charset, feature_sizes)


def with_total(parts: Parts) -> Parts:
    """``parts`` and, under ``"loss"``, their sum."""
    values = list(parts.values())
    total = values[0]
    for value in values[1:]:
        total = total + value
    return {**parts, "loss": total}


def to_tensor(output: Any, where: str) -> paddle.Tensor:
    """The tensor that a loss computes on: the last of ``(features, logits)``; 16-bit floats become float32.

    Raises:
        ConfigError: the output is a mapping, that is, of a MultiHead.
        ModelError: the output is no tensor.
    """
    if isinstance(output, (tuple, list)) and output:
        output = output[-1]
    if isinstance(output, Mapping):
        raise ConfigError(
            f"{where} holds several outputs ({', '.join(map(str, output))}), as a MultiHead gives them. "
            f"For a single model, put the loss into a MultiLoss; for sub-models, set `multi_head: true`."
        )
    if not isinstance(output, paddle.Tensor):
        raise ModelError(f"{where} should be a tensor, but is {type(output).__name__}.")
    return output.astype("float32") if output.dtype in _HALF else output


def to_logits(output: Any, where: str) -> paddle.Tensor:
    """As :func:`to_tensor`, for logits [B, N, C].

    Raises:
        ModelError: the tensor has not three axes.
    """
    logits = to_tensor(output, where)
    if logits.ndim != 3:
        raise ModelError(
            f"{where} should be [batch, positions, classes], but has the shape {list(logits.shape)}."
        )
    return logits


def one_of(value: Any, choices: Sequence[Any], where: str) -> Any:
    """``value``, which must be one of ``choices``.

    Raises:
        ConfigError: it is none of them.
    """
    if value not in choices:
        raise ConfigError(f"{where} is {value!r}, but must be one of {', '.join(map(str, choices))}.")
    return value


def number(value: Any, where: str, above: float | None = None, least: float | None = None) -> float:
    """``value`` as a float, greater than ``above`` and not less than ``least`` where they are given.

    Raises:
        ConfigError: it is no number or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{where} must be a number, but is {value!r}.")
    if above is not None and not value > above:
        raise ConfigError(f"{where} must be greater than {above:g}, but is {value:g}.")
    if least is not None and not value >= least:
        raise ConfigError(f"{where} must be at least {least:g}, but is {value:g}.")
    return float(value)
