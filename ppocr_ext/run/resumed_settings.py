"""What decides over the curve of a run besides its weights: labels, losses, indicator. A resume with others says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.config import Config
from ppocr_ext.config.node import dotted
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.messages import LOG, shortened

_INDICATOR = "Metric.main_indicator"
_SHOWN = 5


def settings_of(config: Config, preflight: Mapping[str, PreflightReport]) -> dict[str, str]:
    """Return what is compared, as text by name: the labels of each section, the values of ``Loss``, the indicator.

    Args:
        config: of the run.
        preflight: the check of its data.
    """
    labels = {
        f"labels of {mode}": ", ".join(f"{file.total:,} lines {file.digest}" for file in report.files)
        for mode, report in preflight.items()
    }
    values = {
        dotted(path): str(value) for path, value in _leaves(config.at("Loss").thaw(), ("Loss",)).items()
    }
    return {**labels, **values, _INDICATOR: str(config.at(_INDICATOR, default=None))}


def _leaves(value: Any, path: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    """Return the scalars of a tree by their paths; lists of scalars stay."""
    if isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    return {
        below: leaf for key, each in value.items() for below, leaf in _leaves(each, (*path, str(key))).items()
    }


def warn_of_other_settings(checkpoint: Checkpoint, now: Mapping[str, str]) -> None:
    """Warn if the run of a checkpoint had other settings; nothing is known of older checkpoints and PaddleOCR's."""
    before = checkpoint.train_state().settings
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)] if before else []
    if changed:
        each = [f"{name} (was {before.get(name)}, is {now.get(name)})" for name in changed]
        LOG.warning(
            "%s: the run goes on with other settings, so that its curves and its best evaluation mix both: %s. Fix: if "
            "that is not meant, the settings of before, or a new run: -o Global.pretrained_model=%s.",
            checkpoint.prefix, shortened(each, _SHOWN), checkpoint.prefix,
        )  # fmt: skip
