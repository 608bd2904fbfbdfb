"""Add the values that follow from other keys: center losses for the kind of model, features, lengths, frames."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ppocr_ext.base.parts import CENTER_LOSSES, CTC_HEAD, LIST_LOSSES, LOSSES, MULTI_HEAD
from ppocr_ext.config.class_counts import head_paths
from ppocr_ext.config.config_view import Config, from_plain
from ppocr_ext.config.node import Node, PlaceKind
from ppocr_ext.errors import ConfigError, HostError, UnknownComponentError
from ppocr_ext.registry import BACKBONES, HEADS, Registry

_LISTED = "Loss.loss_config_list"
_FEATURES = "return_feats"
_LENGTH = "max_text_length"
_FRAMES = "train_frames"


def derive_values(config: Config) -> Config:
    """Return ``config`` with center losses fitted, features switched on, text lengths and training frames filled in.

    Raises:
        ConfigError: see `fit_center_losses`.
    """
    return fill_train_frames(fill_text_lengths(switch_features_on(fit_center_losses(config))))


def fit_center_losses(config: Config) -> Config:
    """Return ``config`` with each ``CenterLoss`` of ``Loss.loss_config_list`` in the form that its model needs.

    So one overlay fits single models and distillations. With a loss that takes no list, such as ``name: CTCLoss``,
    it becomes a part of a ``CombinedLoss`` of that loss, with weight 1, and itself. In a distillation it becomes the
    ``DistillationCenterLoss`` of the trained sub-models. Other configs are returned unchanged. Options keep the
    places where they were written.

    Raises:
        ConfigError: a loss that takes no list has one with more than center losses.
    """
    return _name_sub_models(_combine(config))


def _combine(config: Config) -> Config:
    loss = config.node("Loss")
    entries = config.node(_LISTED)
    if loss is None or entries is None or not entries.is_list:
        return config
    name = config.at("Loss.name", default=None)
    centers = [_is_center_loss(entry) for entry in entries.value]
    if not isinstance(name, str) or name in LIST_LOSSES or not any(centers):
        return config
    if not all(centers):
        if name not in LOSSES:  # a loss of the user's own may take a list
            return config
        raise ConfigError(
            f"Loss: {name} takes no loss_config_list, so the CenterLoss in it would not be used. Fix: set Loss.name "
            f"to MultiLoss (for a MultiHead) or CombinedLoss.",
            code="unused_list",
        )
    place = config.place("Loss.name")
    options = {key: item for key, item in loss.value.items() if key not in ("name", "loss_config_list")}
    single = Node({name: Node({"weight": Node(1.0, place.computed()), **options}, place)}, place)
    combined = {
        "name": Node("CombinedLoss", place.computed()),
        "loss_config_list": Node((single, *entries.value), entries.place),
    }
    return config.with_values({"Loss": Node(combined, loss.place)})


def _is_center_loss(entry: Node) -> bool:
    return entry.is_mapping and len(entry.value) == 1 and next(iter(entry.value)) in CENTER_LOSSES


def _name_sub_models(config: Config) -> Config:
    models = config.at("Architecture.Models", default=None)
    entries = config.node(_LISTED)
    if not isinstance(models, Mapping) or entries is None or not entries.is_list:
        return config
    if not all(isinstance(options, Mapping) for options in models.values()):
        return config
    changed = tuple(_distillation_entry(entry, models) for entry in entries.value)
    if all(new is old for new, old in zip(changed, entries.value, strict=True)):
        return config
    return config.with_values({_LISTED: Node(_join_center_losses(changed), entries.place)})


def _join_center_losses(entries: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the list with one DistillationCenterLoss for several; options of a later one replace earlier ones.

    The config.yml of a run with center loss has one; an overlay on top of it adds another.
    """
    indices = [index for index, entry in enumerate(entries) if _is_center_loss(entry)]
    options = [next(iter(entries[index].value.values())) for index in indices]
    if len(indices) < 2 or not all(item.is_mapping for item in options):
        return entries
    pairs = [pair for item in options for pair in item.value.items()]
    given = {key: value for key, value in pairs if value.place.kind is not PlaceKind.COMPUTED}
    values = {**{key: value for key, value in pairs if key not in given}, **given}
    one = Node({"DistillationCenterLoss": Node(values, options[-1].place)}, entries[indices[0]].place)
    rest = [entry for index, entry in enumerate(entries) if index not in indices]
    return (*rest[: indices[0]], one, *rest[indices[0] :])


def _distillation_entry(entry: Node, models: Mapping[str, Any]) -> Node:
    if not entry.is_mapping or list(entry.value) != ["CenterLoss"]:
        return entry
    options = entry.value["CenterLoss"]
    given = {} if options.value is None else options.value
    if not isinstance(given, dict):
        return entry
    trained = {name: model for name, model in models.items() if not model.get("freeze_params")}
    whole = all(model.get("return_all_feats") for model in trained.values())
    heads = [model.get("Head") for model in trained.values()]
    several = all(isinstance(head, Mapping) and head.get("name") == MULTI_HEAD for head in heads)
    found = {"model_name_list": list(trained), "key": "head_out" if whole else None, "multi_head": several}
    computed = from_plain(found, options.place.computed()).value
    return Node({"DistillationCenterLoss": Node({**computed, **given}, options.place)}, entry.place)


def switch_features_on(config: Config) -> Config:
    """Return ``config`` with ``return_feats: true`` in each CTC head, if ``Global.return_feats`` is true.

    So one overlay fits a single CTCHead, a MultiHead and a distillation, whose heads have different paths.
    Other configs are returned unchanged.
    """
    if config.at(f"Global.{_FEATURES}", default=None) is not True:
        return config
    paths = [(*path, _FEATURES) for path in ctc_heads(config)]
    lacking = {path: True for path in paths if config.at(path, None) is not True}
    return config.with_computed(lacking, f"Global.{_FEATURES}")


def ctc_heads(config: Config) -> Iterator[tuple[str, ...]]:
    """Yield the path of the options of every CTC head in ``Architecture``."""
    for path in head_paths(config):
        if config.at((*path, "name"), None) == CTC_HEAD:
            yield path
        for name, entry in _heads(config, path):
            if name == CTC_HEAD:
                yield (*entry, "Head")


def _heads(config: Config, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield name and path of each head in the ``head_list`` at ``path``."""
    listed = config.at((*path, "head_list"), default=None)
    for index, entry in enumerate(listed if isinstance(listed, tuple) else ()):
        for name in entry if isinstance(entry, Mapping) else ():
            yield str(name), (*path, "head_list", str(index), str(name))


def fill_text_lengths(config: Config) -> Config:
    """Return ``config`` with ``max_text_length`` of each NRTRHead and SARHead in a ``head_list``.

    It is ``Global.max_text_length`` if the head has none. Without that key, heads keep their own default.
    """
    longest = config.at(f"Global.{_LENGTH}", default=None)
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 1:
        return config
    lacking = {
        (*entry, _LENGTH): longest
        for path in head_paths(config)
        for name, entry in _heads(config, path)
        if isinstance(config.at(entry), Mapping | None)
        and config.at((*entry, _LENGTH), None) is None
        and (name == "NRTRHead" or name == "SARHead" and _takes(HEADS, name, _LENGTH))
    }
    return config.with_computed(lacking, f"Global.{_LENGTH}")


def _takes(registry: Registry, name: str, key: str) -> bool:
    """Return True if the component ``name`` has the option ``key``."""
    try:
        return key in inspect.signature(registry.get(name)).parameters
    except (UnknownComponentError, HostError):  # reported by the config check
        return False


def fill_train_frames(config: Config) -> Config:
    """Return ``config`` with ``train_frames`` of each frozen sub-model whose backbone has that key.

    It is the one of the first trained sub-model that has one, so that a teacher makes as many frames as its student.
    """
    models = config.at("Architecture.Models", default=None)
    if not isinstance(models, Mapping):
        return config
    trained: list[tuple[str, ...]] = []
    lacking: list[tuple[str, ...]] = []
    for name in models:
        backbone = ("Architecture", "Models", str(name), "Backbone")
        path = (*backbone, _FRAMES)
        component = config.at((*backbone, "name"), None)
        is_frozen = config.at((*backbone[:-1], "freeze_params"), None)
        if config.at(path, None) is not None:
            trained += [] if is_frozen else [path]
        elif is_frozen and isinstance(component, str) and _takes(BACKBONES, component, _FRAMES):
            lacking.append(path)
    value = config.at(trained[0]) if trained else None
    if value != "width" and not (type(value) is int and value > 0):  # the student is refused for it, by name
        return config
    return config.with_computed(dict.fromkeys(lacking, value), ".".join(trained[0]))
