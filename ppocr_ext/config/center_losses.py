"""A CenterLoss laid over a config comes to stand where that config's kind of model has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.config.config import Config
from ppocr_ext.errors import ConfigError

_LISTED = "Loss.loss_config_list"
_LISTS = ("CombinedLoss", "MultiLoss")
_ALONE = ("CTCLoss", "NRTRLoss")  # surely take no list
_CENTER = ("CenterLoss", "DistillationCenterLoss")


def fit_center_losses(config: Config) -> Config:
    """``config`` with each ``CenterLoss`` of ``Loss.loss_config_list`` as its kind of model needs it.

    So one overlay fits single models and distillations. Beside a loss that takes no list, as ``name: CTCLoss``, it
    becomes a part of a ``CombinedLoss`` of that loss, with weight 1, and itself. In a distillation it becomes the
    ``DistillationCenterLoss`` of its trained sub-models. Other configs are returned as they are.

    Raises:
        ConfigError: a loss that takes no list has one with more than center losses.
    """
    return _name_sub_models(_combine(config))


def _combine(config: Config) -> Config:
    loss = config.at("Loss", default=None)
    entries = config.at(_LISTED, default=None)
    if not isinstance(loss, Mapping) or not isinstance(entries, tuple) or not entries:
        return config
    name = loss.get("name")
    centers = [_is_center(entry) for entry in entries]
    if not isinstance(name, str) or name in _LISTS or not any(centers):
        return config
    if not all(centers):
        if name not in _ALONE:
            return config  # perhaps a loss of a user's own that takes a list
        raise ConfigError(
            f"Loss: {name} takes no loss_config_list, so that the CenterLoss in it would not be used. Set Loss.name "
            f"to MultiLoss (of a MultiHead) or CombinedLoss."
        )
    rest = loss.thaw() if isinstance(loss, Config) else dict(loss)
    listed = rest.pop("loss_config_list")
    del rest["name"]
    combined = [{name: {"weight": 1.0, **rest}}, *listed]
    return config.with_values({"Loss": {"name": "CombinedLoss", "loss_config_list": combined}})


def _is_center(entry: Any) -> bool:
    return isinstance(entry, Mapping) and len(entry) == 1 and next(iter(entry)) in _CENTER


def _name_sub_models(config: Config) -> Config:
    models = config.at("Architecture.Models", default=None)
    entries = config.at(_LISTED, default=None)
    if (
        not isinstance(models, Mapping)
        or not isinstance(entries, tuple)
        or not all(map(_is_model, models.values()))
    ):
        return config
    changed = [_entry(entry, models) for entry in entries]
    if not any(new is not old for new, old in zip(changed, entries, strict=True)):
        return config
    plain = [entry.thaw() if isinstance(entry, Config) else entry for entry in changed]
    return config.with_values({_LISTED: plain})


def _is_model(options: Any) -> bool:
    return isinstance(options, Mapping)


def _entry(entry: Any, models: Mapping[str, Any]) -> Any:
    if not isinstance(entry, Mapping) or list(entry) != ["CenterLoss"]:
        return entry
    options = entry["CenterLoss"] or {}
    if not isinstance(options, Mapping):
        return entry
    trained = {name: model for name, model in models.items() if not model.get("freeze_params")}
    whole = all(model.get("return_all_feats") for model in trained.values())
    heads = [model.get("Head") for model in trained.values()]
    several = all(isinstance(head, Mapping) and head.get("name") == "MultiHead" for head in heads)
    found = {"model_name_list": list(trained), "key": "head_out" if whole else None, "multi_head": several}
    given = options.thaw() if isinstance(options, Config) else dict(options)
    return {"DistillationCenterLoss": {**found, **given}}
