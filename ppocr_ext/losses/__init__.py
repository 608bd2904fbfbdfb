"""Losses by PaddleOCR's names, and corrected ones under names of their own; importing this registers them.

``metrics.jsonl`` lists each part of a loss under its name; INDEX, in these names, counts from 0. If two parts have the
same name, the second is logged as ``NAME#2``. The parts of ``MultiLoss`` have the name of their loss.
"""

from ppocr_ext.losses.base_loss import Loss, LossContext, required_outputs
from ppocr_ext.losses.center_loss import CenterLoss
from ppocr_ext.losses.combined_losses import CombinedLoss, MultiLoss, build_loss
from ppocr_ext.losses.distillation_losses import (
    CTCFrameKDLoss,
    DistillationDKDLoss,
    DistillCTCLogits,
    MaskedDKDLoss,
)
from ppocr_ext.losses.label_losses import CELoss, CTCLoss, NRTRLoss, SARLoss
from ppocr_ext.losses.pair_losses import (
    DistillationDistanceLoss,
    DistillationDMLLoss,
    DistillationKLDivLoss,
)
from ppocr_ext.losses.sub_model_losses import (
    DistillationCenterLoss,
    DistillationCTCLoss,
    DistillationNRTRLoss,
    DistillationSARLoss,
)
from ppocr_ext.losses.taught_loss import TaughtLoss, ctc_of

__all__ = [
    "CELoss",
    "CTCFrameKDLoss",
    "CTCLoss",
    "CenterLoss",
    "CombinedLoss",
    "DistillCTCLogits",
    "DistillationCTCLoss",
    "DistillationCenterLoss",
    "DistillationDKDLoss",
    "DistillationDMLLoss",
    "DistillationDistanceLoss",
    "DistillationKLDivLoss",
    "DistillationNRTRLoss",
    "DistillationSARLoss",
    "Loss",
    "LossContext",
    "MaskedDKDLoss",
    "MultiLoss",
    "NRTRLoss",
    "SARLoss",
    "TaughtLoss",
    "build_loss",
    "ctc_of",
    "required_outputs",
]
