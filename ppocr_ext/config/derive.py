"""Add the values that follow from others: center losses, features, lengths, frames, class counts, padding ids."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppocr_ext.base.parts import (
    BRANCH_OF_HEAD,
    BRANCH_ROWS,
    CENTER_LOSSES,
    CTC_HEAD,
    HEAD_DECODERS,
    INFERENCE_MODEL,
    LIST_LOSSES,
    LOSS_ROWS,
    MULTI_HEAD,
    ONE_WIDTH,
    SPECIALS,
)
from ppocr_ext.charset import Charset
from ppocr_ext.config.config_view import Config, from_plain, named_items
from ppocr_ext.config.node import Node, PlaceKind, dotted
from ppocr_ext.errors import CharsetError, ConfigError, HostError, UnknownComponentError
from ppocr_ext.io.resources import shipped_dictionaries
from ppocr_ext.messages import LOG, did_you_mean, near_match, path_hint
from ppocr_ext.registry import BACKBONES, HEADS, Registry
from ppocr_ext.text_direction import LEFT_TO_RIGHT, default_direction

MAX_DROP = 0.01  # default of Eval.general.max_drop, the share of its accuracy that may be lost
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

    So one overlay fits single models and distillations. If the loss takes no list, such as ``name: CTCLoss``, it
    becomes a ``CombinedLoss`` of that loss, with weight 1, and the center loss. In a distillation the center loss
    becomes the ``DistillationCenterLoss`` of the trained sub-models. Other configs are returned unchanged. Options
    keep their places.

    Raises:
        ConfigError: a loss that takes no list has a list with other losses than center losses.
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
        if name not in LOSS_ROWS:  # a plugin's loss may take a list
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
    """Return the list with its DistillationCenterLosses joined to one; options of a later one replace earlier ones.

    There are two if an overlay with a center loss is laid over the config.yml of a run with center loss.
    """
    indices = [index for index, entry in enumerate(entries) if _is_center_loss(entry)]
    options = [next(iter(entries[index].value.values())) for index in indices]
    if len(indices) < 2 or not all(item.is_mapping for item in options):
        return entries
    pairs = [pair for item in options for pair in item.value.items()]
    explicit = {key: value for key, value in pairs if value.place.kind is not PlaceKind.COMPUTED}
    values = {**{key: value for key, value in pairs if key not in explicit}, **explicit}
    one = Node({"DistillationCenterLoss": Node(values, options[-1].place)}, entries[indices[0]].place)
    rest = [entry for index, entry in enumerate(entries) if index not in indices]
    return (*rest[: indices[0]], one, *rest[indices[0] :])


def _distillation_entry(entry: Node, models: Mapping[str, Any]) -> Node:
    if not entry.is_mapping or list(entry.value) != ["CenterLoss"]:
        return entry
    options = entry.value["CenterLoss"]
    own = {} if options.value is None else options.value
    if not isinstance(own, dict):
        return entry
    trained = {name: model for name, model in models.items() if not model.get("freeze_params")}
    heads = [model.get("Head") for model in trained.values()]
    follows = {
        "model_name_list": list(trained),
        "key": "head_out" if all(model.get("return_all_feats") for model in trained.values()) else None,
        "multi_head": all(isinstance(head, Mapping) and head.get("name") == MULTI_HEAD for head in heads),
    }
    computed = from_plain(follows, options.place.computed()).value
    return Node({"DistillationCenterLoss": Node({**computed, **own}, options.place)}, entry.place)


def switch_features_on(config: Config) -> Config:
    """Return ``config`` with ``return_feats: true`` in each CTC head, if ``Global.return_feats`` is true.

    So one overlay fits a single CTCHead, a MultiHead and a distillation, though their heads have different paths.
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
    """Return ``config`` with ``Global.max_text_length`` in each NRTRHead and SARHead of a ``head_list``.

    A head that has ``max_text_length`` keeps it. Without the key in ``Global``, heads keep their own default.
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
    """Return ``config`` with ``train_frames`` in each frozen sub-model whose backbone takes that key.

    The value is that of the first trained sub-model that has one, so that teacher and student have as many frames.
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
    # The config check reports a wrong value for the student; it is not copied to the frozen models.
    if value != "width" and not (type(value) is int and value > 0):
        return config
    return config.with_computed(dict.fromkeys(lacking, value), ".".join(trained[0]))


_Path = tuple[str, ...]

_SAR_LOSSES = [name for name, row in LOSS_ROWS.items() if row.branch == "sar"]


def with_class_counts(config: Config, charset: Charset) -> Config:
    """Return ``config`` with the numbers that depend on the dictionary filled in.

    A number that the config has is replaced, as PaddleOCR does.

    - ``Head.out_channels_list`` of each MultiHead: one entry for each of its heads, ``CTCLabelDecode`` n,
      ``SARLabelDecode`` n + 2, ``NRTRLabelDecode`` n + 3.
    - ``Head.out_channels`` of a single head: the length of its decoder's ``character`` in PaddleOCR.
      A head with an unknown name and an unknown decoder is not changed.
    - ``ignore_index`` of each SAR loss: n + 1, the padding.

    Here n is `Charset.ctc_classes`. The order of the losses and the number of sub-models do not matter. PaddleOCR's
    tools derive n from the decoder, and look for the SAR loss at one position. So they are wrong for the second
    MultiHead under ``DistillationSARLabelDecode``.

    Args:
        config: the configuration; not changed.
        charset: the dictionary of the config.

    Raises:
        ConfigError: a MultiHead has no ``head_list``.
    """
    counts = class_counts(config, charset)
    others = {path: value for path, value in counts.items() if config.at(path, None) != value}
    return config.with_computed(others, "Global.character_dict_path")


def class_counts(config: Config, charset: Charset) -> dict[_Path, int]:
    """Return every class count and padding id by its path.

    Raises:
        ConfigError: a MultiHead has no ``head_list``.
    """
    counts: dict[_Path, int] = {}
    decoder = str(config.at("PostProcess.name", "")).removeprefix("Distillation")
    for path in head_paths(config):
        head = config.at(path)
        if head.get("name") == MULTI_HEAD:
            counts.update(_branch_counts(head, path, charset))
        else:
            if (count := _single_count(str(head.get("name")), decoder, charset)) is not None:
                counts[(*path, "out_channels")] = count
    return counts | dict.fromkeys(_ignore_index_paths(config), charset.sar_padding_id)


def model_paths(config: Config) -> list[_Path]:
    """Return the path of the model, or of each sub-model."""
    models = config.at("Architecture.Models", None)
    names = [("Models", str(name)) for name in models] if isinstance(models, Mapping) else [()]
    return [("Architecture", *name) for name in names]


def named_weights(config: Config) -> dict[str, Any]:
    """Return the weights that a training begins from, by the keys that name them."""
    own = (dotted((*path, "pretrained")) for path in model_paths(config))
    return {key: value for key in ("Global.pretrained_model", *own) if (value := config.at(key, None))}


def has_one_width(config: Config) -> bool:
    """Return True if a network reads images of one width alone, so that wider images fail or do not help.

    Of a part without a row in ``ONE_WIDTH``, such as one of a plugin, any width is expected.
    """
    parts = [
        config.at((*path, kind), None) or {}
        for path in model_paths(config)
        for kind in ("Transform", "Backbone")
    ]
    return any(part.get(ONE_WIDTH.get(str(part.get("name")))) for part in parts)


def of_general(config: Config) -> Config:
    """Return a config whose ``Eval`` reads the general list: its ``dataset`` goes over that of ``Eval``.

    A share of the lines of ``Eval`` (``ratio_list``) is not one of this list.
    """
    dataset = config.at("Eval.general.dataset")
    config = config.without(["Eval.dataset.ratio_list"])
    return config.with_values({f"Eval.dataset.{key}": value for key, value in dataset.items()})


def is_inference_model(config: Config, name: str) -> bool:
    """Return True for a sub-model that is an inference model as it is."""
    return config.at(("Architecture", "Models", str(name), "Head", "name"), None) == INFERENCE_MODEL


def head_paths(config: Config) -> list[_Path]:
    """Return the path of the head of the model, or of each sub-model."""
    paths = [(*path, "Head") for path in model_paths(config)]
    return [path for path in paths if isinstance(config.at(path, None), Mapping)]


def _branch_counts(head: Config, path: _Path, charset: Charset) -> Iterator[tuple[_Path, int]]:
    heads = head.get("head_list")
    if not isinstance(heads, tuple) or not all(
        isinstance(item, Mapping) and len(item) == 1 for item in heads
    ):
        raise ConfigError(
            f"{dotted((*path, 'head_list'))}: a MultiHead needs a list of heads (found {heads!r}, expected "
            f"`- CTCHead: {{...}}` and `- NRTRHead: {{...}}`).",
            code="bad_head_list",
        )
    counts = {"ctc": charset.ctc_classes, "sar": charset.sar_classes, "gtc": charset.nrtr_classes}
    branches = {BRANCH_OF_HEAD.get(str(name)) for item in heads for name in item}
    for branch, count in counts.items():
        decoder = BRANCH_ROWS[branch].decoder
        if branch in branches or decoder in (head.get("out_channels_list") or {}):
            yield (*path, "out_channels_list", decoder), count


def _single_count(head: str, decoder: str, charset: Charset) -> int | None:
    # ViTSTR's classifier is a CTCHead that is trained on attention labels
    own = (
        decoder if decoder == "ViTSTRLabelDecode" and head == "CTCHead" else HEAD_DECODERS.get(head, decoder)
    )
    if (specials := SPECIALS.get(own)) is None:
        LOG.info("out_channels of %s is not computed: the symbols of decoder %r are unknown.", head, decoder)
        return None
    return len(charset.characters) + specials


def _ignore_index_paths(config: Config) -> Iterator[_Path]:
    if config.at("Loss.name", None) in _SAR_LOSSES:
        yield "Loss", "ignore_index"
    for name, path in named_items(config, "Loss", "loss_config_list"):
        if name in _SAR_LOSSES:
            yield *path, "ignore_index"


def resolve_charset(config: Config, find_file: Callable[[str], Path | None]) -> Charset:
    """Return the charset of ``Global.character_dict_path`` and ``Global.use_space_char``.

    Without a dictionary it has 0-9 and a-z, as in PaddleOCR; the config check warns of it.

    Args:
        config: the configuration.
        find_file: returns the file for a path of a config, or None; the host looks in the current folder, then in
            PaddleOCR's folder.

    Raises:
        CharsetError: the dictionary is not found or cannot be used.
        ConfigError: ``use_space_char`` is neither true nor false.
    """
    name: Any = config.at("Global.character_dict_path", None)
    settings = config.settings
    use_space = settings.use_space_char
    if not name:
        return replace(Charset.default(), drops_unknown=settings.unknown_char == "drop_char")
    path = _dictionary_file(str(name), find_file, config.where("Global.character_dict_path"))
    charset = Charset.from_file(path, use_space, lenient=True)
    direction = settings.text_direction or default_direction(str(name))
    if settings.text_direction is None and direction != LEFT_TO_RIGHT:
        LOG.info(
            "Global.text_direction is not set: %s, since PaddleOCR turns texts if character_dict_path has `arabic`.",
            direction,
        )
    return replace(
        charset,
        unknown_symbol=(settings.unknown_symbol or "") if settings.unknown_char == "map" else "",
        drops_unknown=settings.unknown_char == "drop_char",
        direction=direction,
    )


def read_old_charset(
    path: str | None, config: Config, find_file: Callable[[str], Path | None], where: str
) -> Charset | None:
    """Return the dictionary with which weights were trained; None without a path.

    Args:
        path: as the user wrote it at ``where``.
        config: the configuration.
        find_file: see :func:`resolve_charset`.
        where: the place of the path, for messages.

    Raises:
        CharsetError: it is not found, empty, or not UTF-8.
    """
    if path is None:
        return None
    space = config.settings.use_space_char
    # lenient, since the weights already have its flaws
    return Charset.from_file(_dictionary_file(str(path), find_file, where), space, lenient=True)


def _dictionary_file(name: str, find_file: Callable[[str], Path | None], where: str) -> Path:
    """Return the file of the dictionary ``name``, which stands at ``where``.

    Raises:
        CharsetError: it is not found.
    """
    if (path := find_file(name)) is None:
        file = Path(name)
        others = "in PaddleOCR's own folder and in the dictionaries of ppocr-ext"
        places = "" if file.is_absolute() else f" (searched in {Path.cwd()}, {others})"
        problem = "is a folder" if file.is_dir() else f"is missing{places}"
        shipped = shipped_dictionaries()
        near = shipped.get(near_match(file.name, shipped, cutoff=0.85) or "")
        hint = path_hint(name) or did_you_mean(near)
        raise CharsetError(
            f"{where}: the dictionary {name} {problem}.{hint} Fix: give a text file with one character per line.",
            code="missing_file",
        )
    return path
