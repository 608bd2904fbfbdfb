"""Metrics by PaddleOCR's names; importing this registers them."""

from ppocr_ext.metrics.building import build_metric
from ppocr_ext.metrics.distillation_metric import DistillationMetric
from ppocr_ext.metrics.rec_metric import RecMetric

__all__ = ["DistillationMetric", "RecMetric", "build_metric"]
