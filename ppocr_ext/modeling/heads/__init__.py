"""Heads: frames become characters."""

from ppocr_ext.modeling.heads.ctc import CTCHead
from ppocr_ext.modeling.heads.multi import MultiHead
from ppocr_ext.modeling.heads.nrtr import Transformer

__all__ = ["CTCHead", "MultiHead", "Transformer"]
