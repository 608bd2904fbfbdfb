"""``ppocr.modeling`` for a host without one."""
