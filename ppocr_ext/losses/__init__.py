"""Losses by PaddleOCR's names, and corrected ones under names of their own; importing this registers them."""

from ppocr_ext.losses.base import Loss
from ppocr_ext.losses.building import build_loss
from ppocr_ext.losses.ce import CELoss
from ppocr_ext.losses.center import CenterLoss
from ppocr_ext.losses.combined import CombinedLoss
from ppocr_ext.losses.ctc import CTCLoss
from ppocr_ext.losses.ctc_frame_kd import CTCFrameKDLoss
from ppocr_ext.losses.ctc_logits import DistillCTCLogits
from ppocr_ext.losses.distance import DistillationDistanceLoss
from ppocr_ext.losses.distillation_center import DistillationCenterLoss
from ppocr_ext.losses.distillation_ctc import DistillationCTCLoss
from ppocr_ext.losses.distillation_nrtr import DistillationNRTRLoss
from ppocr_ext.losses.dkd import DistillationDKDLoss
from ppocr_ext.losses.dml import DistillationDMLLoss
from ppocr_ext.losses.kl import DistillationKLDivLoss
from ppocr_ext.losses.masked_dkd import MaskedDKDLoss
from ppocr_ext.losses.multi import MultiLoss
from ppocr_ext.losses.nrtr import NRTRLoss

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
    "Loss",
    "MaskedDKDLoss",
    "MultiLoss",
    "NRTRLoss",
    "build_loss",
]
