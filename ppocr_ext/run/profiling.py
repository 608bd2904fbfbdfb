"""PaddleOCR's profiler (``-p``, ``profiler_options``): its options checked before the run and not in its midst."""

from __future__ import annotations

import logging
import re

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError

_LOG = logging.getLogger("ppocr_ext")
_KEYS = (
    "batch_range",
    "state",
    "sorted_key",
    "tracer_option",
    "profile_path",
    "exit_on_finished",
    "timer_only",
)
_RANGE = re.compile(r"\[?(\d+),(\d+)\]?")
_DEFAULT_END = 20  # of PaddleOCR's batch_range


def run_is_profiled(config: Config) -> bool:
    """Whether PaddleOCR's loop runs under its profiler, which leaves the process when it is done."""
    return bool(config.at("profiler_options", default=None))


def check_profiler(config: Config, total_steps: int) -> None:
    """Refuse options that the host's profiler would stumble over in the first step, or pass over in silence.

    Args:
        config: the configuration, with or without ``profiler_options``.
        total_steps: of the run.

    Raises:
        ConfigError: the options are not ``key=value;…``, a key is unknown, or the range is none.
    """
    options = config.at("profiler_options", default=None)
    if not options:
        return
    if not isinstance(options, str):
        raise ConfigError(f"profiler_options: {options!r} is not a text such as batch_range=[10,20].")
    end = _DEFAULT_END
    for part in options.replace(" ", "").split(";"):
        key, equals, value = part.partition("=")
        if not equals or "=" in value or key not in _KEYS:
            raise ConfigError(
                f"profiler_options (-p): {part!r} is not key=value with a key of {', '.join(_KEYS)}. Write such as "
                f'-p "batch_range=[10,20];timer_only=False".'
            )
        if key == "batch_range":
            end = _end_of(value)
    if end >= total_steps:
        _LOG.warning(
            "profiler_options: batch_range ends at batch %d, but the run has %d: there will be no summary.",
            end,
            total_steps,
        )


def _end_of(value: str) -> int:
    found = _RANGE.fullmatch(value)
    if found is None or int(found[2]) <= int(found[1]):
        raise ConfigError(
            f"profiler_options (-p): batch_range={value} is no range of batches, such as [10,20]."
        )
    return int(found[2])
