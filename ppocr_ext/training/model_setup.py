"""A run's model: built, narrowed to what is read, and filled with weights."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError, WeightsError
from ppocr_ext.modeling import DistillationModel
from ppocr_ext.training.serialize import read_state
from ppocr_ext.training.weights import fit_state, load_weights, parameter_file

_LOG = logging.getLogger("ppocr_ext")

Reads = set[tuple[str | None, str]]
_BRANCH_OF = {"ctc": "ctc", "neck": "ctc", "gtc": "gtc", "sar": "sar"}
# layers of a MultiHead that belong to one branch alone
_BRANCH_LAYERS = {
    "ctc": ("ctc_encoder", "ctc_head"),
    "gtc": ("before_gtc", "gtc_head"),
    "sar": ("sar_head",),
}


def decoder_models(config: Config) -> tuple[str, ...] | None:
    """Names of the sub-models that the decoder reads; None for a model without sub-models."""
    if config.at("Architecture.Models", default=None) is None:
        return None
    names = config.at("PostProcess.model_name", default=None) or ("Student",)
    return (names,) if isinstance(names, str) else tuple(names)


def narrow(model: Any, reads: Reads | None, config: Config) -> None:
    """Let each sub-model compute only the branches that something reads.

    Parameters of branches that nothing reads are no longer trained (a data-parallel reducer would
    wait for their gradients). ``reads`` None: a foreign loss does not say, everything is computed.
    """
    if reads is None:
        return
    reads = set(reads)
    if config.at("Global.cal_metric_during_train", default=False):
        reads |= {(name, "ctc") for name in decoder_models(config) or (None,)}
    branches = _branches(reads)
    if isinstance(model, DistillationModel):
        _refuse_unknown(branches, model.model_name_list)
        model.require({str(name): wanted for name, wanted in branches.items()})
        for name in model.model_name_list:
            _freeze_unread(getattr(model, name), branches.get(name, set()))
    else:
        wanted = branches.get(None, set())
        if hasattr(model, "train_request"):
            model.train_request = replace(model.train_request, branches=frozenset(wanted))
        _freeze_unread(model, wanted)


def _branches(reads: Iterable[tuple[str | None, str]]) -> dict[str | None, set[str]]:
    branches: dict[str | None, set[str]] = {}
    for name, output in reads:
        wanted = branches.setdefault(name, set())
        if output in _BRANCH_OF:
            wanted.add(_BRANCH_OF[output])
    return branches


def _refuse_unknown(branches: Mapping[str | None, set[str]], names: Iterable[str]) -> None:
    known = set(names)
    unknown = [str(name) for name in branches if name not in known]
    if unknown:
        raise ConfigError(
            f"Loss: it reads the sub-model{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}, but "
            f"Architecture.Models has {', '.join(sorted(known))}. Correct model_name_list or model_name_pairs."
        )


def _freeze_unread(model: Any, wanted: set[str]) -> None:
    head = getattr(model, "head", None)
    for branch, layers in _BRANCH_LAYERS.items():
        if branch in wanted:
            continue
        for layer in layers:
            for parameter in getattr(head, layer).parameters() if hasattr(head, layer) else ():
                parameter.stop_gradient = True


def load_model_weights(
    model: Any,
    config: Config,
    charset: Charset,
    *,
    checkpoint: Path | None,
    needed: tuple[str, ...] | None,
    old_charset: Charset | None = None,
) -> bool:
    """Fill ``model`` from the checkpoint or ``Global.pretrained_model``, and sub-models from their own files.

    Args:
        checkpoint: prefix of the checkpoint to go on from, if any; goes before ``pretrained_model``.
        needed: sub-models that must have weights; others may lack them. None: all.
        old_charset: the dictionary that the weights were trained with, if another.

    Returns:
        Whether any file was loaded.

    Raises:
        WeightsError: see :func:`ppocr_ext.training.weights.load_weights`.
    """
    path = checkpoint or config.at("Global.pretrained_model", default=None)
    options: dict[str, Any] = {
        "partial": bool(config.at("Global.pretrained_partial", default=False)),
        "charset": charset,
        "old_charset": None if checkpoint is not None else old_charset,
    }
    if not isinstance(model, DistillationModel):
        if path is None:
            return False
        load_weights(model, path, prefer="Student.", **options)
        return True
    covered = _covered_models(model, path) if path else set()
    if path:
        others = tuple(f"{name}." for name in model.model_name_list if name not in covered)
        load_weights(model, path, optional=others, **options)
    for name in model.model_name_list:
        if name not in covered:
            _load_sub_model(model, name, needed, {**options, "old_charset": old_charset})
            covered |= {name} if model.pretrained.get(name) else set()
    return bool(covered)


def _covered_models(model: DistillationModel, path: str | Path) -> set[str]:
    """Sub-models of which the file at ``path`` has entries."""
    file = parameter_file(path)
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    fit = fit_state(file, read_state(file), shapes)
    present = {*fit.matched, *fit.wrong_shape}
    return {name for name in model.model_name_list if any(n.startswith(f"{name}.") for n in present)}


def _load_sub_model(
    model: DistillationModel, name: str, needed: tuple[str, ...] | None, options: dict[str, Any]
) -> None:
    path = model.pretrained.get(name)
    if needed is not None and name not in needed:
        return
    if path:
        try:
            load_weights(getattr(model, name), path, prefer=f"{name}.", **options)
        except WeightsError as fault:
            raise WeightsError(f"Architecture.Models.{name}.pretrained: {fault}") from fault
    elif name in model.frozen:
        _LOG.warning(
            "%s is frozen but has no weights: it would teach noise. Give its weights with "
            "-o Architecture.Models.%s.pretrained=PATH.",
            name,
            name,
        )
