"""CTC loss of sub-models."""

from __future__ import annotations

from collections.abc import Sequence

from ppocr_ext.losses.ctc import CTCLoss
from ppocr_ext.losses.distillation import SubModelLoss
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationCTCLoss(SubModelLoss):
    """:class:`CTCLoss` of each listed sub-model; arguments as :class:`SubModelLoss` has them."""

    def __init__(
        self,
        model_name_list: Sequence[str] = (),
        key: str | None = None,
        multi_head: bool = False,
        name: str = "loss_ctc",
    ) -> None:
        super().__init__(CTCLoss(), "ctc", model_name_list, key, multi_head, name)
