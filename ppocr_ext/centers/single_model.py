"""Make a config of one recogniser, and of the samples for its centers, from a training config."""

from __future__ import annotations

from typing import Any

from ppocr_ext.config import Config
from ppocr_ext.data.batch_layout import BatchLayout, kept_keys
from ppocr_ext.errors import ConfigError
from ppocr_ext.run.recogniser import single_recogniser

_ONE_SIZE = {"MultiScaleDataSet": "SimpleDataSet", "MSTextRecDataset": "TextRecDataset"}
_TRAIN_ONLY = ("ratio_list", "ds_width", "ext_op_transform_idx", "ext_data_num")


def config_of_model(config: Config, name: str | None, split: str) -> tuple[Config, str | None]:
    """Return a config of one recogniser and of the samples to run it on.

    Args:
        config: a training config of one model, or of a distillation.
        name: the sub-model; None: that of ``Metric.key``, or ``Student``.
        split: ``train``: the samples of ``Train`` with the transforms of ``Eval``; ``eval``: those of ``Eval``.

    Returns:
        The config, and the sub-model's name (None for a config of one model).

    Raises:
        ConfigError: there is no such sub-model, or no such section.
        WeightsError: the checkpoint cannot be read, or holds only other sub-models.
    """
    single, name = single_recogniser(config, name)
    # features are read from the network, without decoder and metric
    values: dict[str, Any] = {"Global.dry_step": False}
    if split == "train":
        values["Eval"] = _training_samples(config)
    return single.with_values(values), name


def _training_samples(config: Config) -> dict[str, Any]:
    for mode in ("Train", "Eval"):
        if config.at(mode, default=None) is None:
            raise ConfigError(
                f"The config has no section {mode}: samples of Train are read with the transforms of Eval.",
                code="missing_section",
            )
    section: dict[str, Any] = config.at("Eval").thaw()
    dataset = {k: v for k, v in config.at("Train.dataset").thaw().items() if k not in _TRAIN_ONLY}
    dataset["name"] = _ONE_SIZE.get(dataset["name"], dataset["name"])
    dataset["transforms"] = section["dataset"].get("transforms")
    return {**section, "dataset": dataset}


def label_positions(config: Config) -> tuple[int, int]:
    """Return the positions of the CTC label and its length in a batch, by ``KeepKeys`` of ``Eval``.

    Raises:
        ConfigError: ``KeepKeys`` does not keep them.
    """
    layout = BatchLayout.of_keys(kept_keys(config.at("Eval.dataset.transforms", default=())) or ())
    if layout.label is not None and layout.length is not None:
        return layout.label, layout.length
    raise ConfigError(
        "Eval.dataset.transforms: KeepKeys must keep label_ctc (or label) and length.", code="labels_not_kept"
    )
