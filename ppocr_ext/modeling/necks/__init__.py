"""Necks: map the features of a backbone to a sequence of frames."""

from ppocr_ext.modeling.necks.sequence_encoder import (
    LightSVTR,
    RecurrentEncoder,
    SequenceEncoder,
    SVTREncoder,
    narrow_necks,
)

__all__ = ["LightSVTR", "RecurrentEncoder", "SVTREncoder", "SequenceEncoder", "narrow_necks"]
