"""Backbones: map the image of a text line to features."""

from ppocr_ext.modeling.backbones.repsvtr import RepSVTR
from ppocr_ext.modeling.backbones.svtrv2 import SVTRv2

__all__ = ["RepSVTR", "SVTRv2"]
