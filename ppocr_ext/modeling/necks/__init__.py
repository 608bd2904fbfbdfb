"""Necks: map the features of a backbone to a sequence of frames."""

from ppocr_ext.modeling.necks.sequence_encoder import SequenceEncoder, SVTREncoder

__all__ = ["SVTREncoder", "SequenceEncoder"]
