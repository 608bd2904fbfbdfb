"""Configurations: read, laid over one another, resolved once, and then never changed."""

from ppocr_ext.config.center_losses import name_sub_models
from ppocr_ext.config.class_counts import resolve_charset, with_class_counts
from ppocr_ext.config.config import Config, load

__all__ = ["Config", "load", "name_sub_models", "resolve_charset", "with_class_counts"]
