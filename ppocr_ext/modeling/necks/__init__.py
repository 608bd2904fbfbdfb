"""Necks: map the features of a backbone to a sequence of frames."""

from ppocr_ext.modeling.necks.light_svtr import LightSVTR
from ppocr_ext.modeling.necks.sequence_encoder import SequenceEncoder
from ppocr_ext.modeling.necks.svtr import RecurrentEncoder, SVTREncoder, narrow_necks

__all__ = ["LightSVTR", "RecurrentEncoder", "SVTREncoder", "SequenceEncoder", "narrow_necks"]
