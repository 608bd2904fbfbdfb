"""Configurations: read, laid over one another, resolved once, and then never changed."""

from ppocr_ext.config.center_losses import name_sub_models
from ppocr_ext.config.class_counts import resolve_charset, with_class_counts
from ppocr_ext.config.config import Config, load
from ppocr_ext.config.return_feats import ctc_heads, switch_features_on

__all__ = [
    "Config",
    "ctc_heads",
    "load",
    "name_sub_models",
    "resolve_charset",
    "switch_features_on",
    "with_class_counts",
]
