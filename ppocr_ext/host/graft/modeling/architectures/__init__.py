"""``ppocr.modeling.architectures`` for a host without one."""

from ppocr_ext.modeling import apply_to_static, build_model

__all__ = ["apply_to_static", "build_model"]
