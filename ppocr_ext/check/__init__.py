"""Checks of a config."""

from ppocr_ext.check.check import check_config

__all__ = ["check_config"]
