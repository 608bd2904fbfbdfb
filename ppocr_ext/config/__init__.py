"""Read configurations, merge their overlays and options, and add computed values. A config never changes."""

from ppocr_ext.config.config_view import Config, load, named_items
from ppocr_ext.config.derive import (
    ctc_heads,
    derive_values,
    fit_center_losses,
    read_old_charset,
    resolve_charset,
    switch_features_on,
    with_class_counts,
)
from ppocr_ext.config.node import plain_copy

__all__ = [
    "Config",
    "ctc_heads",
    "derive_values",
    "fit_center_losses",
    "load",
    "named_items",
    "plain_copy",
    "read_old_charset",
    "resolve_charset",
    "switch_features_on",
    "with_class_counts",
]
