"""``ppocr.modeling.backbones`` for a host without one."""

from ppocr_ext.modeling import build_backbone

__all__ = ["build_backbone"]
