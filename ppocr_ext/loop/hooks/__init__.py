"""Hooks of a run, one feature a file."""

from ppocr_ext.loop.hooks.eval_samples import EvalSamples
from ppocr_ext.loop.hooks.metrics_log import MetricsLog
from ppocr_ext.loop.hooks.progress import ProgressBar
from ppocr_ext.loop.hooks.report_hook import ReportHook
from ppocr_ext.loop.hooks.run_record import RunRecord
from ppocr_ext.loop.hooks.teacher_check import TeacherCheck

__all__ = ["MetricsLog", "ProgressBar", "ReportHook", "RunRecord", "EvalSamples", "TeacherCheck"]
