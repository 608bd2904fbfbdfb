"""Metrics by PaddleOCR's names; importing this registers them."""

from ppocr_ext.metrics.building import SPACES_IGNORED, build_metric, space_note
from ppocr_ext.metrics.distillation_metric import DistillationMetric
from ppocr_ext.metrics.rec_metric import RecMetric

__all__ = ["SPACES_IGNORED", "DistillationMetric", "RecMetric", "build_metric", "space_note"]
