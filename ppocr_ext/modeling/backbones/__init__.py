"""Backbones: map the image of a text line to features."""

from ppocr_ext.modeling.backbones.fixed_size import SVTRNet, ViTParseQ
from ppocr_ext.modeling.backbones.mobilenet import MobileNetV1Enhance, MobileNetV3
from ppocr_ext.modeling.backbones.mtb import MTB
from ppocr_ext.modeling.backbones.pphgnet import PPHGNet_small, PPHGNetV2_B4
from ppocr_ext.modeling.backbones.pplcnet import PPLCNetV3, PPLCNetV4
from ppocr_ext.modeling.backbones.repsvtr import RepSVTR
from ppocr_ext.modeling.backbones.resnet import ResNet, ResNet31
from ppocr_ext.modeling.backbones.svtrv2 import SVTRv2

__all__ = [
    "MTB",
    "MobileNetV1Enhance",
    "MobileNetV3",
    "PPHGNetV2_B4",
    "PPHGNet_small",
    "PPLCNetV3",
    "PPLCNetV4",
    "RepSVTR",
    "ResNet",
    "ResNet31",
    "SVTRNet",
    "SVTRv2",
    "ViTParseQ",
]
