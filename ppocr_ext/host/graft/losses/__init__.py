"""``ppocr.losses`` for a host without one."""

from ppocr_ext.losses import build_loss as build_loss
