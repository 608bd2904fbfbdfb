"""Build a metric from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.errors import ConfigError
from ppocr_ext.registry import METRICS

SPACES_IGNORED = "spaces ignored (Metric.ignore_space: true)"


def build_metric(config: Mapping[str, Any], has_space: bool = False) -> Any:
    """The metric that the ``Metric`` section of a config names; ``config`` is not changed.

    Args:
        config: the section.
        has_space: the dictionary has the space: a metric that ignores spaces also gives ``acc_with_space``.

    Raises:
        ConfigError: no name, or an unknown name or key.
    """
    options = dict(config)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"Metric: `name` is missing. One of: {', '.join(METRICS.names())}.")
    return METRICS.build(name, options, has_space=has_space)


def space_note(metric: Any) -> str:
    """Return what to say beside the numbers of ``metric``: that they ignore spaces; empty where they do not."""
    return SPACES_IGNORED if getattr(metric, "ignore_space", False) else ""
