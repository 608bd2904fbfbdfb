"""A CenterLoss in the config of a distillation stands for that of each trained sub-model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.config.config import Config

_LISTED = "Loss.loss_config_list"


def name_sub_models(config: Config) -> Config:
    """``config`` with each ``CenterLoss`` of a distillation as a ``DistillationCenterLoss`` of its trained sub-models.

    So one overlay fits single models and distillations. Other configs are returned as they are.
    """
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
