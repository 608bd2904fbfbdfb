"""Hooks of a run, one feature a file."""

from ppocr_ext.training.hooks.metrics_log import MetricsLog
from ppocr_ext.training.hooks.progress import ProgressBar
from ppocr_ext.training.hooks.run_record import RunRecord
from ppocr_ext.training.hooks.teacher_check import TeacherCheck

__all__ = ["MetricsLog", "ProgressBar", "RunRecord", "TeacherCheck"]
