"""``ppocr.modeling.architectures`` for a host without one."""

from ppocr_ext.modeling import apply_to_static as apply_to_static
from ppocr_ext.modeling import build_model as build_model
