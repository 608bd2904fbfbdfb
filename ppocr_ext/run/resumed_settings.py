"""Labels, losses and indicator of a run: a resume with other ones is warned of, since curves then mix both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.config import Config
from ppocr_ext.config.yaml_io import dump
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.messages import LOG, shortened


def settings_of(config: Config, preflight: Mapping[str, PreflightReport]) -> list[str]:
    """Return what is compared, a line each: the labels of each section, the values of ``Loss``, the indicator.

    Args:
        config: of the run.
        preflight: the check of its data.
    """
    return [
        *(
            f"{mode}: {file.total:,} labels with the digest {file.digest}"
            for mode, report in preflight.items()
            for file in report.files
        ),
        *(f"Loss: {line.strip()}" for line in dump(config.at("Loss").thaw()).splitlines()),
        f"Metric.main_indicator: {config.at('Metric.main_indicator', default=None)}",
    ]


def warn_of_other_settings(checkpoint: Checkpoint, now: Sequence[str]) -> None:
    """Warn if the run of a checkpoint had other settings; nothing is known of older checkpoints and PaddleOCR's."""
    before = checkpoint.train_state().settings
    if before and set(before) != set(now):
        LOG.warning(
            "%s: the run goes on with other settings, so that its curves and its best evaluation mix both. Before: %s. "
            "Now: %s. Fix: if that is not meant, those of before, or a new run: -o Global.pretrained_model=%s.",
            checkpoint.prefix,
            shortened([line for line in before if line not in now], 5),
            shortened([line for line in now if line not in before], 5),
            checkpoint.prefix,
        )
