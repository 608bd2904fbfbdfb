"""Backbones: an image of a text line becomes features."""

from ppocr_ext.modeling.backbones.repsvtr import RepSVTR
from ppocr_ext.modeling.backbones.svtrv2 import SVTRv2

__all__ = ["RepSVTR", "SVTRv2"]
