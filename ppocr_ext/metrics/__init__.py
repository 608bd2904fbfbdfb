"""Metrics by PaddleOCR's names; importing this registers them."""

from ppocr_ext.metrics.recognition_metrics import (
    SPACES_IGNORED,
    DistillationMetric,
    RecMetric,
    build_metric,
    space_note,
)

__all__ = ["SPACES_IGNORED", "DistillationMetric", "RecMetric", "build_metric", "space_note"]
