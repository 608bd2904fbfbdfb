"""Hooks of a run, one feature a file."""

from ppocr_ext.training.hooks.metrics_log import MetricsLog
from ppocr_ext.training.hooks.progress import ProgressBar
from ppocr_ext.training.hooks.report import ReportHook
from ppocr_ext.training.hooks.run_record import RunRecord
from ppocr_ext.training.hooks.samples import Samples
from ppocr_ext.training.hooks.teacher_check import TeacherCheck

__all__ = ["MetricsLog", "ProgressBar", "ReportHook", "RunRecord", "Samples", "TeacherCheck"]
