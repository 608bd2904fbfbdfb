"""Make a config of one recogniser, and of the samples for its centers, from a training config."""

from __future__ import annotations

from typing import Any

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.config import Config
from ppocr_ext.data.batch_layout import BatchLayout, kept_keys
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.evaluation.evaluate import check_sub_model

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
    # features are read from the network, without decoder and metric
    values: dict[str, Any] = {"Global.dry_step": False}
    if name is None and config.at("Architecture.Models", default=None) is not None:
        name = str(config.at("Metric.key", default="Student"))
    if name is not None:
        check_sub_model(config, name)
        model = config.at(f"Architecture.Models.{name}").thaw()
        own = model.pop("pretrained", None)
        model.pop("freeze_params", None)
        values |= {
            "Architecture": {"model_type": "rec", **model},
            "PostProcess": {"name": "CTCLabelDecode"},
            "Metric": {"name": "RecMetric", "main_indicator": "acc"},
            **_weights(config, name, own),
        }
    if split == "train":
        values["Eval"] = _training_samples(config)
    return config.with_values(values), name


def _weights(config: Config, name: str, own: str | None) -> dict[str, Any]:
    """Return the values that name the file with the weights of a sub-model; evaluation uses the same order.

    With a checkpoint: the checkpoint, then the sub-model's own file, then ``Global.pretrained_model``. Without one:
    ``Global.pretrained_model``, then the own file.
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
            f"Global.save_teacher). Fix: give them with -o Architecture.Models.{name}.pretrained=PATH.",
            code="missing_weights",
        )
    return {}


def _holds(config: Config, path: str, name: str, own: str | None) -> bool:
    """Return True if a file has weights for the sub-model; a file of one model is for the first trained one."""
    models = config.at("Architecture.Models")
    names = Checkpoint(path).models()
    if names.intersection(models):
        return name in names
    target = min(
        models, key=lambda other: bool(config.at(f"Architecture.Models.{other}.freeze_params", default=False))
    )
    return not own or name == target


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
