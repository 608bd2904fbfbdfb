"""``ppocr.modeling.transforms`` for a host without one."""

from ppocr_ext.modeling import build_transform as build_transform
