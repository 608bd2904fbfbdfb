"""Configurations: read, laid over one another, resolved once, and then never changed."""

from ppocr_ext.config.center_losses import CENTER_LOSSES, fit_center_losses
from ppocr_ext.config.class_counts import resolve_charset, with_class_counts
from ppocr_ext.config.config import Config, load, plain_copy
from ppocr_ext.config.derive import derive_values
from ppocr_ext.config.lists import named_items
from ppocr_ext.config.return_feats import ctc_heads, switch_features_on

__all__ = [
    "CENTER_LOSSES",
    "Config",
    "ctc_heads",
    "derive_values",
    "load",
    "fit_center_losses",
    "named_items",
    "plain_copy",
    "resolve_charset",
    "switch_features_on",
    "with_class_counts",
]
