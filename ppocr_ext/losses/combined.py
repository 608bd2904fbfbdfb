"""The weighted sum of several losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base import Loss, Parts, Read, number
from ppocr_ext.losses.building import listed_losses
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class CombinedLoss(Loss):
    """Weighted sum of losses, each called as ``loss(predicts, batch)``; parts are logged with their weight.

    A loss that gives a bare tensor, or nothing but ``loss``, is logged under its own name (PaddleOCR logs
    the first under the tensor's text and the second not at all). Where two losses log the same name, the
    second one's gets ``#2`` (PaddleOCR keeps the last), so that the parts always add up to ``loss``.

    Args:
        loss_config_list: ``[{NAME: {weight: …, options …}}, …]``.

    Raises:
        ConfigError: an entry has no ``weight``, or cannot be built.
    """

    def __init__(self, loss_config_list: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__()
        self.names: list[str] = []
        self.weights: list[float] = []
        self.losses: list[Any] = []
        for position, (name, options) in enumerate(listed_losses(loss_config_list, "CombinedLoss")):
            if "weight" not in options:
                raise ConfigError(f"CombinedLoss: {name} has no `weight`. Add one, such as `weight: 1.0`.")
            weight = number(options.pop("weight"), f"CombinedLoss: weight of {name}")
            loss = LOSSES.build(name, options)
            if isinstance(loss, paddle.nn.Layer):
                self.add_sublayer(f"{position}_{name}", loss)
            self.names.append(name)
            self.weights.append(weight)
            self.losses.append(loss)

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Every part under its name, and ``"loss"``: the weighted sum."""
        logged: Parts = {}
        total: Any = 0.0
        for name, weight, loss in zip(self.names, self.weights, self.losses, strict=True):
            values = loss(predicts, batch)
            if isinstance(values, paddle.Tensor):
                values = {name: values}
            parts = {key: value * weight for key, value in values.items()}
            entire = parts.pop("loss", None)
            parts = parts or {name: entire}
            total = total + (sum(parts.values()) if entire is None else entire)
            for key, value in parts.items():
                logged[_free_name(key, logged)] = value
        return {**logged, "loss": total}

    def reads(self) -> set[Read] | None:
        """What any of the losses reads; None (everything) if one of them cannot say."""
        return union_of_reads(self.losses)


def union_of_reads(losses: Sequence[Any]) -> set[Read] | None:
    """What any of ``losses`` reads; None (everything) if one has no ``reads`` or answers None."""
    union: set[Read] = set()
    for loss in losses:
        read = loss.reads() if hasattr(loss, "reads") else None
        if read is None:
            return None
        union |= read
    return union


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    count = 2
    while f"{name}#{count}" in taken:
        count += 1
    return f"{name}#{count}"
