"""``ppocr.metrics`` for a host without one."""

from ppocr_ext.metrics import build_metric as build_metric
