"""Load one trained recogniser without its data, to read images or to export it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddle import nn

from ppocr_ext.base.parts import BRANCH_ROWS, CTC_DECODER, MULTI_HEAD
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.contents import BEST
from ppocr_ext.config import Config, load
from ppocr_ext.config.derive import is_inference_model
from ppocr_ext.errors import ConfigError, DataError, WeightsError
from ppocr_ext.io.resources import find_config
from ppocr_ext.run.context import RunOptions, open_context
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.networks import build_network

CONFIG_FILE = "config.yml"
_WEIGHT_KEYS = ("Global.checkpoints", "Global.pretrained_model")


@dataclass(frozen=True)
class TrainedRecogniser:
    """A recogniser with its weights; complete when it exists.

    Attributes:
        config: the config of this recogniser only, resolved, with defaults and class counts.
        charset: the dictionary.
        network: a ``BaseModel`` in eval mode with all its weights; it returns the probabilities of CTC, or the
            characters of an NRTR decoder.
        sub_model: its name in the config of a distillation; None in a config of one model.
        weights: the ``.pdparams`` file of the weights.
        device: Paddle's name of it.
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

    The weights are those that ``eval`` takes: ``Global.checkpoints``, or if that is missing ``Global.pretrained_model``
    or ``Architecture.Models.NAME.pretrained``.

    Args:
        config: as loaded, of one model or of a distillation.
        host_path: a PaddleOCR checkout; None searches for a host.
        model: the sub-model; None for that of ``Metric.key``, or ``Student``.
        old_dictionary: dictionary of the weights, if it differs from the config's.
        nrtr: allow a recogniser whose output is decoded by NRTR (:func:`decoded_by_nrtr`), besides CTC.

    Raises:
        PPOCRExtError: something cannot be built, or an entry of the weights is missing; the message says what to
            change.
    """
    single, name = single_recogniser(config, model)
    decoder = str(config.at("PostProcess.name", default=CTC_DECODER))
    by_nrtr = decoded_by_nrtr(config)
    if decoder.removeprefix("Distillation") != CTC_DECODER and not (nrtr and by_nrtr):
        raise ConfigError(
            f"{config.where('PostProcess.name')}: PostProcess.name: {decoder} does not decode CTC (expected "
            f"{CTC_DECODER}). Fix: read images with `ppocr-ext {'predict' if by_nrtr else 'eval'}`. Only CTC heads are "
            f"exported, also the one of a MultiHead.",
            code="unsupported_component",
        )
    context = open_context(single, RunOptions("predict", host_path, old_dictionary, name or "Student"))
    network = build_network(context.components, context.charset)
    # A run may start from partial weights, but its checkpoints have all weights.
    whole = context.config.with_values({"Global.pretrained_partial": False})
    if not load_model_weights(network, replace(context, config=whole), needed=None):
        raise WeightsError(
            f"The config names no weights{f' for {name}' if name else ''}. Fix: give a checkpoint, as in -o "
            f"Global.checkpoints=output/my_run/best_accuracy, or the folder of a run instead of a config.",
            code="missing_weights",
        )
    network.eval()
    path = next(filter(None, (context.config.at(key, default=None) for key in _WEIGHT_KEYS)))
    weights = Checkpoint(path).weights_file()
    return TrainedRecogniser(context.config, context.charset, network, name, weights, context.device)


def recogniser_config(source: str | Path, options: Sequence[str] = ()) -> Config:
    """Return the config of a trained recogniser, from a run folder with its best checkpoint, or from a config file.

    A file ``config.yml`` beside a best checkpoint means its run folder.

    Args:
        source: a run folder (``Global.save_model_dir``), or a config file.
        options: as after ``-o``; ``Global.checkpoints=…`` or ``Global.pretrained_model=…`` replaces the checkpoint.

    Raises:
        DataError: ``source`` is a folder without a run.
        WeightsError: the run has no best checkpoint.
        ConfigError: the config cannot be read.
    """
    path = Path(source)
    file = path / CONFIG_FILE if path.is_dir() else find_config(str(source))
    if path.is_dir() and not file.is_file():
        raise DataError(
            f"{path}: neither the folder of a run nor of an export (found neither {CONFIG_FILE} nor model.json). Fix: "
            f"give the folder that a run writes to (Global.save_model_dir), or one that `ppocr-ext export` wrote.",
            code="no_run",
        )
    config = load([file], options)
    best = file.parent / BEST
    is_run = path.is_dir() or (file.name == CONFIG_FILE and Path(f"{best}.pdparams").is_file())
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
            f"{path}: this run has no {BEST}.pdparams, which is written after its first evaluation. Fix: {fix}.",
            code="missing_file",
        )
    return config.with_values({"Global.checkpoints": str(best)})


def check_sub_model(config: Config, name: str) -> None:
    """Check that ``config`` has the sub-model ``name``.

    Raises:
        ConfigError: it does not.
    """
    models = config.at("Architecture.Models", default=None)
    if models is None or name not in models:
        names = "a single model without a name" if models is None else ", ".join(models)
        raise ConfigError(
            f"--model {name}: no such sub-model (this config has {names})", code="unknown_sub_model"
        )


def single_recogniser(config: Config, name: str | None) -> tuple[Config, str | None]:
    """Return the config of a sub-model of a distillation; a config of one model is returned unchanged.

    Args:
        config: a training config of one model, or of a distillation.
        name: the sub-model; None for that of ``Metric.key``, or ``Student``.

    Returns:
        The config, and the sub-model's name (None for a config of one model).

    Raises:
        ConfigError: there is no such sub-model.
        WeightsError: the checkpoint cannot be read, or has only other sub-models.
    """
    if name is None and config.at("Architecture.Models", default=None) is not None:
        name = str(config.at("Metric.key", default="Student"))
    if name is None:
        return config, None
    check_sub_model(config, name)
    if is_inference_model(config, name):
        raise ConfigError(
            f"{name} is an inference model already. Fix: give `ppocr-ext predict` the path in its `pretrained`.",
            code="unsupported_model",
        )
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
        config.at("PostProcess.name", default=None) == BRANCH_ROWS["gtc"].decoder
        and config.at("Architecture.Models", default=None) is None
        and config.at("Architecture.Head.name", default=None) != MULTI_HEAD
    )


def _weights(config: Config, name: str, own: str | None) -> dict[str, Any]:
    """Return config values that name the weights of a sub-model, in the order of an evaluation.

    With a checkpoint: the checkpoint, then the sub-model's own file, then ``Global.pretrained_model``. Without one:
    ``Global.pretrained_model``, then the own file.
    """
    checkpoint, first = (config.at(key, default=None) for key in _WEIGHT_KEYS)
    main = checkpoint or first
    if main and _holds(config, main, name, own):
        return {}
    if own:
        return {"Global.pretrained_model": own, "Global.checkpoints": None}
    if checkpoint and first and _holds(config, first, name, own):
        return {"Global.checkpoints": None}
    if main:
        raise WeightsError(
            f"{main} has no weights of {name} (a checkpoint has a frozen teacher only with Global.save_teacher). Fix: "
            f"give them with -o Architecture.Models.{name}.pretrained=PATH.",
            code="missing_weights",
        )
    return {}


def _holds(config: Config, path: str, name: str, own: str | None) -> bool:
    """Return True if a file has weights of the sub-model. Weights of a single model are for the first trained one."""
    models = config.at("Architecture.Models")
    names = Checkpoint(path).models()
    if names.intersection(models):
        return name in names
    target = min(
        models, key=lambda other: bool(config.at(f"Architecture.Models.{other}.freeze_params", default=False))
    )
    return not own or name == target
