"""``ppocr.modeling.heads`` for a host without one."""

from ppocr_ext.modeling import build_head

__all__ = ["build_head"]
