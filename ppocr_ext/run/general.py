"""The general list, which a fine-tuned recogniser must still read: ``Eval.general``."""

from __future__ import annotations

from dataclasses import replace

from paddle import nn

from ppocr_ext.config import Config
from ppocr_ext.run.context import RunContext, RunOptions
from ppocr_ext.run.loader import Loader
from ppocr_ext.run.loader_setup import open_data
from ppocr_ext.run.team import Team

SECTION = "Eval.general"
MAX_DROP = 0.01  # default of its `max_drop`


def of_general(config: Config) -> Config:
    """Return a config whose ``Eval`` reads the general list: its ``dataset`` goes over that of ``Eval``."""
    dataset = config.at(f"{SECTION}.dataset")
    return config.with_values({f"Eval.dataset.{key}": value for key, value in dataset.items()})


def open_general(context: RunContext, model: nn.Layer) -> Loader:
    """Return the loader of the general list; its labels are checked as those of ``Eval``.

    Args:
        context: the context of a run with such a list; the other processes of a training are not needed.
        model: its networks.

    Raises:
        DataError: the list cannot be used; the message names the section ``Eval.general``.
    """
    alone = replace(
        context,
        config=of_general(context.config),
        components=of_general(context.components),
        options=RunOptions("eval", context.options.host_path, eval_section=SECTION),
        team=Team(),
    )
    return open_data(alone, model).eval_loader
