"""``ppocr.modeling.necks`` for a host without one."""

from ppocr_ext.modeling import build_neck as build_neck
