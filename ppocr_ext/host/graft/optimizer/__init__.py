"""``ppocr.optimizer`` for a host without one."""

from ppocr_ext.optim import build_lr_scheduler, build_optimizer

__all__ = ["build_lr_scheduler", "build_optimizer"]
