"""Values that follow from other keys of a config."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ppocr_ext.config.center_losses import fit_center_losses
from ppocr_ext.config.class_counts import head_paths
from ppocr_ext.config.computed import with_computed
from ppocr_ext.config.config import Config
from ppocr_ext.config.return_feats import switch_features_on
from ppocr_ext.errors import HostError, UnknownComponentError
from ppocr_ext.registry import HEADS

_KEY = "max_text_length"


def derive_values(config: Config) -> Config:
    """Return ``config`` with center losses fitted, features switched on and text lengths filled in.

    Raises:
        ConfigError: see `fit_center_losses`.
    """
    return fill_text_lengths(switch_features_on(fit_center_losses(config)))


def fill_text_lengths(config: Config) -> Config:
    """Return ``config`` with ``max_text_length`` of each NRTRHead and SARHead in a ``head_list``.

    It is ``Global.max_text_length`` where the head has none. Without that key, heads keep their own default.
    """
    longest = config.at(f"Global.{_KEY}", default=None)
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 1:
        return config
    lacking = {
        (*path, "head_list", str(index), str(name), _KEY): longest
        for path in head_paths(config)
        for index, entry in enumerate(_entries(config.at((*path, "head_list"), default=None)))
        for name, options in entry.items()
        if _lacks_length(options) and _takes_length(str(name))
    }
    return with_computed(config, lacking, f"Global.{_KEY}")


def _entries(listed: Any) -> list[Mapping[Any, Any]]:
    items = listed if isinstance(listed, tuple) else ()
    return [item if isinstance(item, Mapping) else {} for item in items]


def _lacks_length(options: Any) -> bool:
    return options is None or isinstance(options, Mapping) and options.get(_KEY) is None


def _takes_length(head: str) -> bool:
    if head != "SARHead":
        return head == "NRTRHead"
    try:
        return _KEY in inspect.signature(HEADS.get(head)).parameters
    except (UnknownComponentError, HostError):  # reported by the config check
        return False
