"""``ppocr.optimizer`` for a host without one."""

from ppocr_ext.optim import build_lr_scheduler as build_lr_scheduler
from ppocr_ext.optim import build_optimizer as build_optimizer
