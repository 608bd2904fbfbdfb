"""``ppocr.modeling.backbones`` for a host without one."""

from ppocr_ext.modeling import build_backbone as build_backbone
