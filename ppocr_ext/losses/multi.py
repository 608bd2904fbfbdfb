"""The losses of a MultiHead's branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import paddle

from ppocr_ext.errors import ConfigError
from ppocr_ext.losses.base import FEATURES, Loss, Parts, Read, number, with_total
from ppocr_ext.losses.building import listed_losses
from ppocr_ext.losses.targets import head_batch
from ppocr_ext.registry import LOSSES

# Which entry of the MultiHead's output a loss is for.
BRANCH_OF = {"CTCLoss": "ctc", "CenterLoss": "ctc", "NRTRLoss": "gtc", "SARLoss": "sar"}


@LOSSES.register()
class MultiLoss(Loss):
    """``weight_1 · CTCLoss + weight_2 · NRTRLoss`` (or SARLoss, from a PaddleOCR checkout) of one model.

    A CenterLoss may stand beside them, with a ``weight`` of its own.

    ``predicts``: ``{"ctc": …, "gtc": …}`` of a MultiHead.
    ``batch``: ``[image, label_ctc, label_gtc, length, valid_ratio]``.

    Args:
        loss_config_list: ``[{CTCLoss: options}, {NRTRLoss: options}]``; options may be empty.
        weight_1: weight of CTCLoss.
        weight_2: weight of the others.

    Raises:
        ConfigError: another loss is listed, or one twice, or an output that a loss needs is not there.
    """

    def __init__(
        self,
        loss_config_list: Sequence[Mapping[str, Any]] = (),
        weight_1: float = 1.0,
        weight_2: float = 1.0,
    ) -> None:
        super().__init__()
        self.losses: dict[str, Any] = {}
        self.weights: dict[str, float] = {}
        weights = (number(weight_1, "MultiLoss: weight_1"), number(weight_2, "MultiLoss: weight_2"))
        for name, options in listed_losses(loss_config_list, "MultiLoss"):
            if name not in BRANCH_OF:
                raise ConfigError(f"MultiLoss: {name} is none of {', '.join(BRANCH_OF)}.")
            if name in self.losses:
                raise ConfigError(f"MultiLoss: {name} is listed twice.")
            weight = weights[0] if name == "CTCLoss" else weights[1]
            if name == "CenterLoss":
                weight = number(options.pop("weight", 1.0), "MultiLoss: weight of CenterLoss")
            self.losses[name] = LOSSES.build(name, options)
            self.weights[name] = weight
            self.add_sublayer(name, self.losses[name])

    def forward(self, predicts: Any, batch: Sequence[paddle.Tensor]) -> Parts:
        """Each loss under its class name with its weight applied, and ``"loss"``: their sum."""
        parts: Parts = {}
        for name, loss in self.losses.items():
            head = BRANCH_OF[name]
            if not isinstance(predicts, Mapping) or head not in predicts:
                there = ", ".join(predicts) if isinstance(predicts, Mapping) else type(predicts).__name__
                raise ConfigError(
                    f"MultiLoss: {name} reads the output {head!r} of a MultiHead, but there is {there}. "
                    f"List its head under Architecture.Head.head_list, or take {name} out."
                )
            reduced = head_batch(batch, head, multi_head=True, where=f"MultiLoss: {name}")
            parts[name] = loss(predicts[head], reduced)["loss"] * self.weights[name]
        return with_total(parts)

    def reads(self) -> set[Read]:
        """The branches of its losses, and what else those read."""
        own = set().union(*(loss.reads() or set() for loss in self.losses.values() if hasattr(loss, "reads")))
        return {(None, BRANCH_OF[name]) for name in self.losses} | {r for r in own if r[1] == FEATURES}
