"""Load one trained recogniser, without its data: to read images, or to export it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddle import nn

from ppocr_ext.base.parts import BRANCHES, CTC_DECODER, MULTI_HEAD
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import BEST
from ppocr_ext.config import Config, load
from ppocr_ext.errors import ConfigError, DataError, WeightsError
from ppocr_ext.io.resources import find_config
from ppocr_ext.run.context import RunOptions, open_context
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.run import build_network

CONFIG_FILE = "config.yml"
_WEIGHT_KEYS = ("Global.checkpoints", "Global.pretrained_model")


@dataclass(frozen=True)
class TrainedRecogniser:
    """A recogniser with its weights; complete when it exists.

    Attributes:
        config: of this recogniser alone, resolved, with defaults and class counts.
        charset: the dictionary.
        network: a ``BaseModel`` in eval mode with all its weights; in eval mode it returns the probabilities of CTC,
            or the characters of an NRTR decoder.
        sub_model: its name in a config of several; None in a config of one model.
        weights: the ``.pdparams`` file that the weights were loaded from.
        device: as Paddle names it.
    """

    config: Config
    charset: Charset
    network: nn.Layer
    sub_model: str | None
    weights: Path
    device: str


def load_recogniser(
    config: Config,
    *,
    host_path: str | None = None,
    model: str | None = None,
    old_dictionary: str | None = None,
    nrtr: bool = False,
) -> TrainedRecogniser:
    """Build the network of one recogniser and load its weights; data are neither checked nor opened.

    The weights are those that ``eval`` takes: ``Global.checkpoints``, else ``Global.pretrained_model`` or
    ``Architecture.Models.NAME.pretrained``.

    Args:
        config: as loaded, of one model or of a distillation.
        host_path: a PaddleOCR checkout; None searches for a host.
        model: the sub-model; None: that of ``Metric.key``, or ``Student``.
        old_dictionary: dictionary of the weights, if it differs from the config's.
        nrtr: also load a recogniser that is read by an NRTR decoder (:func:`decoded_by_nrtr`), not only by CTC.

    Raises:
        PPOCRExtError: something cannot be built, or an entry of the weights is missing; the message says what to
            change.
    """
    single, name = single_recogniser(config, model)
    if not (nrtr and decoded_by_nrtr(config)):
        _require_ctc(config)
    context = open_context(single, RunOptions("predict", host_path, old_dictionary, name or "Student"))
    network = build_network(context.components)
    # the best checkpoint of a run that started from a part of the weights has all of them
    whole = context.config.with_values({"Global.pretrained_partial": False})
    loaded = load_model_weights(network, replace(context, config=whole), needed=None)
    if not loaded:
        raise WeightsError(
            f"The config names no weights{f' for {name}' if name else ''}. Fix: give a checkpoint, as in -o "
            f"Global.checkpoints=output/my_run/best_accuracy, or the folder of a run in place of a config.",
            code="missing_weights",
        )
    network.eval()
    path = next(filter(None, (context.config.at(key, default=None) for key in _WEIGHT_KEYS)))
    weights = Checkpoint(path).weights_file()
    return TrainedRecogniser(context.config, context.charset, network, name, weights, context.device)


def recogniser_config(source: str | Path, options: Sequence[str] = ()) -> Config:
    """Return the config of a trained recogniser: of a run folder with its best checkpoint, or of a config file.

    A file ``config.yml`` beside a best checkpoint stands for its run folder.

    Args:
        source: a run folder (``Global.save_model_dir``), or a config file.
        options: as after ``-o``; ``Global.checkpoints=…`` or ``Global.pretrained_model=…`` takes the place of the
            best checkpoint.

    Raises:
        DataError: ``source`` is a folder without a run.
        WeightsError: the run has no best checkpoint.
        ConfigError: the config cannot be read.
    """
    given = Path(source)
    file = given / CONFIG_FILE if given.is_dir() else find_config(str(source))
    if given.is_dir() and not file.is_file():
        raise DataError(
            f"{given}: neither the folder of a run nor of an export (found neither {CONFIG_FILE} nor model.json). Fix: "
            f"give the folder that a run writes to (Global.save_model_dir), or one that `ppocr-ext export` wrote.",
            code="no_run",
        )
    config = load([file], options)
    best = file.parent / BEST
    is_run = given.is_dir() or (file.name == CONFIG_FILE and Path(f"{best}.pdparams").is_file())
    if not is_run or any(
        config.at(key, default=None) and config.place(key).is_option for key in _WEIGHT_KEYS
    ):
        return config
    if not Path(f"{best}.pdparams").is_file():
        latest = best.with_name("latest")
        fix = (
            f"take its last checkpoint: -o Global.checkpoints={latest}"
            if Path(f"{latest}.pdparams").is_file()
            else "train until an evaluation"
        )
        raise WeightsError(
            f"{given}: this run has no {BEST}.pdparams, which is written after its first evaluation. Fix: {fix}.",
            code="missing_file",
        )
    return config.with_values({"Global.checkpoints": str(best)})


def check_sub_model(config: Config, name: str) -> None:
    """Refuse a sub-model that ``config`` does not have.

    Raises:
        ConfigError: there is no such sub-model.
    """
    models = config.at("Architecture.Models", default=None)
    if models is None or name not in models:
        there = "a single model without a name" if models is None else ", ".join(models)
        raise ConfigError(
            f"--model {name}: no such sub-model (this config has {there})", code="unknown_sub_model"
        )


def single_recogniser(config: Config, name: str | None) -> tuple[Config, str | None]:
    """Return the config of one recogniser, made of a sub-model of a distillation; a config of one model as it is.

    Args:
        config: a training config of one model, or of a distillation.
        name: the sub-model; None: that of ``Metric.key``, or ``Student``.

    Returns:
        The config, and the sub-model's name (None for a config of one model).

    Raises:
        ConfigError: there is no such sub-model.
        WeightsError: the checkpoint cannot be read, or holds only other sub-models.
    """
    if name is None and config.at("Architecture.Models", default=None) is not None:
        name = str(config.at("Metric.key", default="Student"))
    if name is None:
        return config, None
    check_sub_model(config, name)
    model = config.at(f"Architecture.Models.{name}").thaw()
    own = model.pop("pretrained", None)
    own_dict = model.pop("pretrained_dict", None)
    model.pop("freeze_params", None)
    weights = _weights(config, name, own)
    if own_dict and weights.get("Global.pretrained_model") == own:
        model["pretrained_dict"] = own_dict
    values = {
        "Architecture": {"model_type": "rec", **model},
        "PostProcess": {"name": CTC_DECODER},
        "Metric": {"name": "RecMetric", "main_indicator": "acc"},
        **weights,
    }
    return config.with_values(values), name


def decoded_by_nrtr(config: Config) -> bool:
    """Return True for one model whose only head is an NRTR decoder: ``NRTRLabelDecode``, and no MultiHead."""
    return (
        config.at("PostProcess.name", default=None) == BRANCHES["gtc"].decoder
        and config.at("Architecture.Models", default=None) is None
        and config.at("Architecture.Head.name", default=None) != MULTI_HEAD
    )


def _require_ctc(config: Config) -> None:
    """Refuse a recogniser whose output is not decoded by CTC."""
    name = str(config.at("PostProcess.name", default=CTC_DECODER))
    if name.removeprefix("Distillation") != CTC_DECODER:
        reader = "predict" if decoded_by_nrtr(config) else "eval"
        raise ConfigError(
            f"{config.where('PostProcess.name')}: PostProcess.name: {name} is not read by CTC (expected "
            f"{CTC_DECODER}). Fix: read images with `ppocr-ext {reader}`. Only CTC heads are exported, also the one "
            f"of a MultiHead.",
            code="unsupported_component",
        )


def _weights(config: Config, name: str, own: str | None) -> dict[str, Any]:
    """Return the values that name the file with the weights of a sub-model; evaluation uses the same order.

    With a checkpoint: the checkpoint, then the sub-model's own file, then ``Global.pretrained_model``. Without one:
    ``Global.pretrained_model``, then the own file.
    """
    checkpoint, first = (config.at(key, default=None) for key in _WEIGHT_KEYS)
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
