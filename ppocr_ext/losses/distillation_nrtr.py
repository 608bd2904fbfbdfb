"""NRTR loss of sub-models."""

from __future__ import annotations

from collections.abc import Sequence

from ppocr_ext.losses.ce import CELoss
from ppocr_ext.losses.distillation import SubModelLoss
from ppocr_ext.registry import LOSSES


@LOSSES.register()
class DistillationNRTRLoss(SubModelLoss):
    """Cross entropy of the NRTR branch of each listed sub-model; arguments as :class:`SubModelLoss` has them.

    Kept for parity: without ``smoothing`` padding counts as a character of class 0 in the mean, so that short
    labels weigh less; with it padding does not count. :class:`NRTRLoss` does not count it in either case.
    """

    def __init__(
        self,
        model_name_list: Sequence[str] = (),
        key: str | None = None,
        multi_head: bool = False,
        smoothing: bool = True,
        name: str = "loss_nrtr",
    ) -> None:
        super().__init__(CELoss(smoothing=smoothing), "gtc", model_name_list, key, multi_head, name)
