"""The config of one recogniser and of the lines that centers are made of, out of a training config."""

from __future__ import annotations

from typing import Any

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.config import Config
from ppocr_ext.data.batch_layout import BatchLayout, kept_keys
from ppocr_ext.errors import ConfigError, WeightsError

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
        WeightsError: the checkpoint that is given cannot be read, or holds other sub-models alone.
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
    model.pop("freeze_params", None)
    return {
        "Architecture": {"model_type": "rec", **model},
        "PostProcess": {"name": "CTCLabelDecode"},
        "Metric": {"name": "RecMetric", "main_indicator": "acc"},
        **_weights(config, name, own),
    }


def _weights(config: Config, name: str, own: str | None) -> dict[str, Any]:
    """Where the weights of a sub-model come from, as in evaluation.

    First from the checkpoint; where it holds none for it, from the sub-model's own file; without one, from
    ``Global.pretrained_model``, which goes before the own file where there is no checkpoint.
    """
    checkpoint, first = (
        config.at(f"Global.{key}", default=None) for key in ("checkpoints", "pretrained_model")
    )
    given = checkpoint or first
    if given and _holds(config, given, name, own):
        return {}
    if own:
        return {"Global.pretrained_model": own, "Global.checkpoints": None}
    if checkpoint and first and _holds(config, first, name, own):
        return {"Global.checkpoints": None}
    if given:
        raise WeightsError(
            f"{given} holds no weights of {name} (a checkpoint holds a frozen teacher only with "
            f"Global.save_teacher). Give them with -o Architecture.Models.{name}.pretrained=PATH."
        )
    return {}


def _holds(config: Config, path: str, name: str, own: str | None) -> bool:
    """Whether a file has weights for the sub-model; those of one model are for the first that is trained."""
    models = config.at("Architecture.Models")
    names = Checkpoint(path).models()
    if names.intersection(models):
        return name in names
    home = min(
        models, key=lambda other: bool(config.at(f"Architecture.Models.{other}.freeze_params", default=False))
    )
    return not own or name == home


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
    layout = BatchLayout.of_keys(kept_keys(config.at("Eval.dataset.transforms", default=())) or ())
    if layout.label is not None and layout.length is not None:
        return layout.label, layout.length
    raise ConfigError(
        "Eval.dataset.transforms: KeepKeys has to keep label_ctc (or label) and length, from which it is known what "
        "a line says."
    )
