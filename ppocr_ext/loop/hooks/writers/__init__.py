"""Writers: what ``metrics.jsonl`` says, for TensorBoard, VisualDL and Weights & Biases."""

from __future__ import annotations

from ppocr_ext.config import Config
from ppocr_ext.loop.hooks.writers.base import Writer, import_package
from ppocr_ext.loop.hooks.writers.tensorboard import TensorBoardWriter
from ppocr_ext.loop.hooks.writers.visual_dl import VisualDLWriter
from ppocr_ext.loop.hooks.writers.weights_and_biases import WandbWriter, wandb_options

__all__ = ["Writer", "require_packages", "writers_for"]


def _asked_for(config: Config) -> list[type[Writer]]:
    """Writers that the config switches on; a section ``wandb`` does, as in PaddleOCR."""
    with_wandb = config.at("Global.use_wandb", default=None)
    if with_wandb is None:
        with_wandb = config.at("wandb", default=None) is not None
    asked: list[tuple[type[Writer], object]] = [
        (TensorBoardWriter, config.at("Global.use_tensorboard", default=False)),
        (VisualDLWriter, config.at("Global.use_visualdl", default=False)),
        (WandbWriter, with_wandb),
    ]
    return [writer for writer, wanted in asked if wanted]


def require_packages(config: Config) -> None:
    """Import what the writers of a run need, before anything heavy is done.

    Raises:
        MissingPackageError: a package is not installed, or cannot be imported.
        ConfigError: a key of the section ``wandb`` is not one of wandb's.
    """
    for writer in _asked_for(config):
        import_package(writer.package)
        if writer is WandbWriter:
            wandb_options(config)


def writers_for(config: Config) -> list[Writer]:
    """The writers that ``config`` asks for, not yet opened."""
    return [writer() for writer in _asked_for(config)]
