"""The config of one recogniser and of the lines that centers are made of, out of a training config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError

_ONE_SIZE = {"MultiScaleDataSet": "SimpleDataSet", "MSTextRecDataset": "TextRecDataset"}
_OF_TRAINING = ("ratio_list", "ds_width", "ext_op_transform_idx", "ext_data_num")


def config_of_model(config: Config, name: str | None, split: str) -> tuple[Config, str | None]:
    """A config of one recogniser and of the lines to run it on, made from a training config.

    Args:
        config: of one model, or of a distillation.
        name: the sub-model; None: the one that ``Metric.key`` names, or ``Student``.
        split: ``train``: the lines of ``Train`` through the transforms of ``Eval``; ``eval``: those of ``Eval``.

    Returns:
        The config, and the sub-model's name (None for a config of one model).

    Raises:
        ConfigError: there is no such sub-model, or no such section.
    """
    values: dict[str, Any] = {}
    models = config.at("Architecture.Models", default=None)
    if models is None:
        if name is not None:
            raise ConfigError(f"--model {name}: this config has one model, without names. Leave --model out.")
    else:
        name = name or str(config.at("Metric.key", default="Student"))
        if name not in models:
            raise ConfigError(f"--model {name}: Architecture.Models has {', '.join(models)}.")
        values |= _architecture(config, name)
    if split == "train":
        values["Eval"] = _training_lines(config)
    return config.with_values(values), name


def _architecture(config: Config, name: str) -> dict[str, Any]:
    model = config.at(f"Architecture.Models.{name}").thaw()
    own = model.pop("pretrained", None)
    frozen = model.pop("freeze_params", False)
    values: dict[str, Any] = {
        "Architecture": {"model_type": "rec", **model},
        "PostProcess": {"name": "CTCLabelDecode"},
        "Metric": {"name": "RecMetric", "main_indicator": "acc"},
    }
    if own and (frozen or not _given_weights(config)):
        values |= {"Global.pretrained_model": own, "Global.checkpoints": None}  # a checkpoint leaves it out
    return values


def _given_weights(config: Config) -> bool:
    return any(config.at(f"Global.{key}", default=None) for key in ("checkpoints", "pretrained_model"))


def _training_lines(config: Config) -> dict[str, Any]:
    for mode in ("Train", "Eval"):
        if config.at(mode, default=None) is None:
            raise ConfigError(
                f"The config has no section {mode}: lines of Train go through the transforms of Eval."
            )
    section: dict[str, Any] = config.at("Eval").thaw()
    dataset = {k: v for k, v in config.at("Train.dataset").thaw().items() if k not in _OF_TRAINING}
    dataset["name"] = _ONE_SIZE.get(dataset["name"], dataset["name"])
    dataset["transforms"] = section["dataset"].get("transforms")
    return {**section, "dataset": dataset}


def label_places(config: Config) -> tuple[int, int]:
    """Where in a batch the CTC label and its length stand, by ``KeepKeys`` of ``Eval``.

    Raises:
        ConfigError: they are not kept.
    """
    for entry in config.at("Eval.dataset.transforms", default=()) or ():
        if isinstance(entry, Mapping) and "KeepKeys" in entry:
            kept = list(entry["KeepKeys"]["keep_keys"])
            label = next((key for key in ("label_ctc", "label") if key in kept), None)
            if label is not None and "length" in kept:
                return kept.index(label), kept.index("length")
    raise ConfigError(
        "Eval.dataset.transforms: KeepKeys has to keep label_ctc (or label) and length, from which it is known what "
        "a line says."
    )
