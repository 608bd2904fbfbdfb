"""Optimizers and learning-rate schedules by PaddleOCR's names; importing this registers them."""

from ppocr_ext.optim.optimizers import build_lr_scheduler, build_optimizer, option_errors

__all__ = ["build_lr_scheduler", "build_optimizer", "option_errors"]
