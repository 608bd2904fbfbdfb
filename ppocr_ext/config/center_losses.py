"""A CenterLoss laid over a config comes to stand where that config's kind of model has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppocr_ext.config.config import Config
from ppocr_ext.config.node import Node, PlaceKind, from_plain
from ppocr_ext.errors import ConfigError

_LISTED = "Loss.loss_config_list"
_LISTS = ("CombinedLoss", "MultiLoss")
_ALONE = ("CTCLoss", "NRTRLoss")  # surely take no list
_COMPUTED = PlaceKind.COMPUTED
CENTER_LOSSES = ("CenterLoss", "DistillationCenterLoss")


def fit_center_losses(config: Config) -> Config:
    """``config`` with each ``CenterLoss`` of ``Loss.loss_config_list`` as its kind of model needs it.

    So one overlay fits single models and distillations. Beside a loss that takes no list, as ``name: CTCLoss``, it
    becomes a part of a ``CombinedLoss`` of that loss, with weight 1, and itself. In a distillation it becomes the
    ``DistillationCenterLoss`` of its trained sub-models. Other configs are returned as they are. Options keep the
    places where they were written.

    Raises:
        ConfigError: a loss that takes no list has one with more than center losses.
    """
    return _name_sub_models(_combine(config))


def _combine(config: Config) -> Config:
    loss, entries = config.node("Loss"), config.node(_LISTED)
    if loss is None or entries is None or not entries.is_list:
        return config
    name = config.at("Loss.name", default=None)
    centers = [_is_center(entry) for entry in entries.value]
    if not isinstance(name, str) or name in _LISTS or not any(centers):
        return config
    if not all(centers):
        if name not in _ALONE:
            return config  # perhaps a loss of a user's own that takes a list
        raise ConfigError(
            f"Loss: {name} takes no loss_config_list, so that the CenterLoss in it would not be used. Set Loss.name "
            f"to MultiLoss (of a MultiHead) or CombinedLoss."
        )
    place = config.place("Loss.name")
    options = {key: item for key, item in loss.value.items() if key not in ("name", "loss_config_list")}
    alone = Node({name: Node({"weight": Node(1.0, place.derived()), **options}, place)}, place)
    combined = {
        "name": Node("CombinedLoss", place.derived()),
        "loss_config_list": Node((alone, *entries.value), entries.place),
    }
    return config.with_values({"Loss": Node(combined, loss.place)})


def _is_center(entry: Node) -> bool:
    return entry.is_mapping and len(entry.value) == 1 and next(iter(entry.value)) in CENTER_LOSSES


def _name_sub_models(config: Config) -> Config:
    models = config.at("Architecture.Models", default=None)
    entries = config.node(_LISTED)
    if (
        not isinstance(models, Mapping)
        or entries is None
        or not entries.is_list
        or not all(map(_is_model, models.values()))
    ):
        return config
    changed = tuple(_entry(entry, models) for entry in entries.value)
    if any(
        new is not old for new, old in zip(changed, entries.value, strict=True)
    ):  # an overlay's CenterLoss
        changed = _merged(changed)
    if len(changed) == len(entries.value) and not any(
        new is not old for new, old in zip(changed, entries.value, strict=True)
    ):
        return config
    return config.with_values({_LISTED: Node(changed, entries.place)})


def _merged(entries: tuple[Node, ...]) -> tuple[Node, ...]:
    """One DistillationCenterLoss in place of several: options of a later one go over those of an earlier one.

    The config.yml of a run with center loss has one; an overlay laid over it brings another.
    """
    places = [index for index, entry in enumerate(entries) if _is_center(entry)]
    options = [next(iter(entries[index].value.values())) for index in places]
    if len(places) < 2 or not all(item.is_mapping for item in options):
        return entries
    given = {
        key: value
        for item in options
        for key, value in item.value.items()
        if value.place.kind is not _COMPUTED
    }
    computed = {key: value for item in options for key, value in item.value.items() if key not in given}
    name = "DistillationCenterLoss"
    one = Node({name: Node({**computed, **given}, options[-1].place)}, entries[places[0]].place)
    rest = [entry for index, entry in enumerate(entries) if index not in places]
    return (*rest[: places[0]], one, *rest[places[0] :])


def _is_model(options: Any) -> bool:
    return isinstance(options, Mapping)


def _entry(entry: Node, models: Mapping[str, Any]) -> Node:
    if not entry.is_mapping or list(entry.value) != ["CenterLoss"]:
        return entry
    options = entry.value["CenterLoss"]
    given = {} if options.value is None else options.value
    if not isinstance(given, dict):
        return entry
    trained = {name: model for name, model in models.items() if not model.get("freeze_params")}
    whole = all(model.get("return_all_feats") for model in trained.values())
    heads = [model.get("Head") for model in trained.values()]
    several = all(isinstance(head, Mapping) and head.get("name") == "MultiHead" for head in heads)
    found = {"model_name_list": list(trained), "key": "head_out" if whole else None, "multi_head": several}
    computed = from_plain(found, options.place.derived()).value
    return Node({"DistillationCenterLoss": Node({**computed, **given}, options.place)}, entry.place)
