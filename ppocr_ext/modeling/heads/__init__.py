"""Heads: map frames to characters."""

from ppocr_ext.modeling.heads.inference_model import InferenceModel
from ppocr_ext.modeling.heads.multi_head import CTCHead, MultiHead
from ppocr_ext.modeling.heads.nrtr_head import Transformer
from ppocr_ext.modeling.heads.sar_head import SARHead

__all__ = ["CTCHead", "InferenceModel", "MultiHead", "SARHead", "Transformer"]
