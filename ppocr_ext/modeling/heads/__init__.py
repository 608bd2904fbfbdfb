"""Heads: map frames to characters."""

from ppocr_ext.modeling.heads.ctc_head import CTCHead
from ppocr_ext.modeling.heads.multi_head import MultiHead
from ppocr_ext.modeling.heads.nrtr_head import Transformer

__all__ = ["CTCHead", "MultiHead", "Transformer"]
