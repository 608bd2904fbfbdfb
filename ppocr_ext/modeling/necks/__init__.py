"""Necks: features of a backbone become a sequence of frames."""

from ppocr_ext.modeling.necks.sequence import SequenceEncoder, SVTREncoder

__all__ = ["SVTREncoder", "SequenceEncoder"]
