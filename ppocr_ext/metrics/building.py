"""Build a metric from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.errors import ConfigError
from ppocr_ext.registry import METRICS


def build_metric(config: Mapping[str, Any]) -> Any:
    """The metric that the ``Metric`` section of a config names; ``config`` is not changed.

    Raises:
        ConfigError: no name, or an unknown name or key.
    """
    options = dict(config)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"Metric: `name` is missing. One of: {', '.join(METRICS.names())}.")
    return METRICS.build(name, options)
