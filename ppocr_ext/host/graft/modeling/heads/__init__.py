"""``ppocr.modeling.heads`` for a host without one."""

from ppocr_ext.modeling import build_head as build_head
