"""Check keys and components of ``Train`` and ``Eval``: dataset, transforms, sampler, loader."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import ppocr_ext.synth.synthetic_dataset  # noqa: F401 - registers its datasets
from ppocr_ext.check.config_check import ConfigCheck
from ppocr_ext.check.signatures import DATA_KEYS, ComponentKeys
from ppocr_ext.config import Config
from ppocr_ext.config.values import ValueRule
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.data.sample_views import CACHE_FACTS
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.registry import DATASETS

_RATIO = ValueRule("number", least=0, most=1)
_SECTION = ("dataset", "loader", "sampler")
_TRAIN_ONLY = ("teacher_cache",)
_NEVER_EMPTY = frozenset({"data_dir", "label_file_list", "transforms"})
_LOADER_REQUIRED = frozenset({"batch_size_per_card", "drop_last", "shuffle", "num_workers"})
_LOADER = ComponentKeys(frozenset(DATA_KEYS["loader"]), _LOADER_REQUIRED, open=False)
# PaddleOCR's datasets that leave the size of images to the transforms, and transforms that give images no one size
_OF_ANY_SIZE = ("SimpleDataSet", "LMDBDataSet")
_NO_SIZE = ("DecodeImage", "RecAug", "RecConAug", "BaseDataAugmentation", "KeepKeys")
# How PaddleOCR's datasets read their section: `dataset_config["x"]`, `.get("x", …)`, `.pop("x")`.
_READING = re.compile(r"""(?:dataset_config|\["dataset"\])(?:\.(get|pop)\(|\[)\s*["'](\w+)["']""")


def check_data(check: ConfigCheck, mode: str) -> None:
    """Check everything below ``Train`` or ``Eval``."""
    section = check.mapping(mode)
    if not section:
        return
    misplaced = [key for part in DATA_KEYS for key in _check_indentation(check, mode, part)]
    known = (*_SECTION, *_TRAIN_ONLY) if mode == "Train" else _SECTION
    for key in section:
        if key not in known and key not in misplaced:
            check.unknown_key((mode, str(key)), known)
    dataset = _check_dataset(check, mode)
    _check_transforms(check, mode)
    loader = check.mapping(mode, "loader")
    if loader:
        check.check_keys((mode, "loader"), _LOADER, loader)
    if loader.get("collate_fn") is not None:
        path = (mode, "loader", "collate_fn")
        check.host_component("collate_fn", "collate_fn", loader["collate_fn"], path)
    _check_sampler(check, mode, dataset)
    if mode == "Train" and section.get("teacher_cache") is not None:
        _check_teacher_cache(check)


def _check_teacher_cache(check: ConfigCheck) -> None:
    """Check that there is a cache, and a teacher whose outputs it may have."""
    path = ("Train", "teacher_cache")
    check.check_value(path, ValueRule("text"))
    folder, models = check.at(*path), check.mapping("Architecture").get("Models")
    every = models.values() if isinstance(models, Mapping) else ()
    if not any(isinstance(model, Mapping) and model.get("freeze_params") is True for model in every):
        check.error(
            path,
            "no_frozen_model",
            "no sub-model is frozen, and only outputs of a frozen teacher can be stored. Fix: set `freeze_params: "
            "true` for the teacher, or remove teacher_cache.",
        )
    elif isinstance(folder, str) and not Path(folder).is_dir():
        check.error(
            path,
            "missing_folder",
            f"there is no folder {folder}. Fix: build it with `ppocr-ext cache-teacher`.",
        )
    elif isinstance(folder, str) and not Path(folder, CACHE_FACTS).is_file():
        check.error(
            path,
            "no_teacher_cache",
            f"{folder} holds no teacher cache: it has no {CACHE_FACTS}. Fix: give the --output of `ppocr-ext "
            f"cache-teacher`.",
        )


def _check_indentation(check: ConfigCheck, mode: str, part: str) -> list[str]:
    """Report a ``part`` of a section that is missing, or whose keys stand beside it; return these keys."""
    empty = check.at(mode, part) is None
    beside = [key for key in DATA_KEYS[part] if key in check.at(mode) and check.at(mode, part, key) is None]
    above = [key for key in DATA_KEYS[part] if empty and key in check.config]
    if beside or above:
        path = (mode, beside[0]) if beside else (above[0],)
        keys = ", ".join(beside or above)
        message = f"wrong indentation: {keys} must stand below `{part}:` of {mode}. Fix: indent further."
        check.error(path, "wrong_indentation", message)
    elif empty:
        check.missing((mode, part))
    return beside


def _check_dataset(check: ConfigCheck, mode: str) -> Callable[..., Any] | None:
    """Check name and keys of the dataset; return its class."""
    path = (mode, "dataset")
    options = check.mapping(*path)
    if not options:
        return None
    if options.get("name") is None:
        check.missing((*path, "name"), f"SimpleDataSet or {', '.join(DATASETS.names())}")
        return None
    dataset = check.component(DATASETS, options["name"], (*path, "name"))
    keys = None if dataset is None else dataset_keys(dataset)
    if keys is not None:
        check.check_keys(path, keys, options, extra=("name", "transforms"))
        for key in sorted(_NEVER_EMPTY & keys.required & options.keys()):
            if options[key] in (None, ()):
                check.error((*path, key), "empty_value", "is empty, but must be given.")
    ratios = options.get("ratio_list")
    # PaddleOCR draws this share of a label file's lines without replacement
    for ratio in ratios if isinstance(ratios, tuple) else (ratios,):
        problem = _RATIO.problem(ratio)
        if problem is not None:
            check.error((*path, "ratio_list"), problem.code, problem.message)
    return dataset


def reads_key(config: Config, mode: str, key: str) -> bool:
    """Return True if the dataset of ``mode`` reads ``key``, or if that cannot be determined."""
    try:
        keys = dataset_keys(DATASETS.get(str(config.at(f"{mode}.dataset.name"))))
    except PPOCRExtError:  # there is no such dataset, which is reported with its name
        return True
    return keys is None or key in keys.named


@cache
def dataset_keys(dataset: Callable[..., Any]) -> ComponentKeys | None:
    """Return the keys that a dataset reads from its section, or None if that cannot be determined.

    A dataset of ours or of a plugin has a class method ``known_keys``; PaddleOCR's have their keys in the source.
    """
    known_keys = getattr(dataset, "known_keys", None)
    if known_keys is not None:
        return ComponentKeys(frozenset(known_keys()), frozenset(), open=False)
    readings = _READING.findall(source_of(dataset))
    if not readings:
        return None
    named = frozenset(name for _, name in readings)
    return ComponentKeys(
        named, frozenset(name for how, name in readings if how != "get") - {"name"}, open=False
    )


@cache
def source_of(component: Callable[..., Any]) -> str:
    """Return the source of a function, or of a class with its bases but without Paddle's."""
    several = component.__mro__ if isinstance(component, type) else (component,)
    texts = []
    for each in several:
        if getattr(each, "__module__", "builtins").partition(".")[0] not in ("builtins", "paddle"):
            with suppress(OSError, TypeError):  # it has no source
                texts.append(inspect.getsource(each))
    return "\n".join(texts)


def _check_transforms(check: ConfigCheck, mode: str) -> None:
    """Check names and keys of the operators; each gets all of ``Global`` besides its own options."""
    given = [str(key) for key in check.mapping("Global")]
    names = []
    for name, path in check.items(mode, "dataset", "transforms"):
        names.append(name)
        operator = check.host_component("operator", "transform", name, path)
        if operator is None:
            continue
        options = check.mapping(*path)
        check.check_keys(path, operator, options, injected=given, extra=given)
        encode = options.get("gtc_encode")
        if name == "MultiLabelEncode" and encode is not None:
            check.host_component("operator", "label encoder", encode, (*path, "gtc_encode"))
    # a transform that is not known here may resize
    unsized = bool(names) and all(name in _NO_SIZE or name.endswith("LabelEncode") for name in names)
    if unsized and check.at(mode, "dataset", "name") in _OF_ANY_SIZE:
        other = read_preprocessing(check.config, "Eval" if mode == "Train" else "Train")
        size = list(other.sizes[0]) if other is not None and other.sizes else [3, 48, 320]
        message = (
            f"no transform gives the images of a batch one size. Fix: add `- RecResizeImg: {{image_shape: {size}}}` "
            f"before KeepKeys."
        )
        check.error((mode, "dataset", "transforms"), "missing_resize", message)


def _check_sampler(check: ConfigCheck, mode: str, dataset: Callable[..., Any] | None) -> None:
    """Check name and keys of the sampler, and that dataset and sampler agree on who gives image sizes."""
    path = (mode, "sampler")
    options = check.mapping(*path)
    # a dataset of several scales gets its image sizes from a sampler, which asks it for `ds_width`
    several_scales = dataset is not None and re.search(r"\bself\.ds_width\b", source_of(dataset)) is not None
    dataset_name = check.at(mode, "dataset", "name")
    name = options.get("name") if mode == "Train" else None
    if several_scales and name is None:
        fix = "give `sampler: {name: MultiScaleSampler, …}`" if mode == "Train" else "use SimpleDataSet"
        message = f"{dataset_name} gets its image sizes from a sampler, and {mode} has none. Fix: {fix}."
        check.error((mode, "dataset", "name"), "sampler_mismatch", message)
    if not options:
        return
    if mode != "Train":
        check.warning(path, "unused_key", "a sampler is used only in Train.")
        return
    if name is None:
        check.missing((*path, "name"), "such as MultiScaleSampler")
        return
    sampler = check.host_component("sampler", "sampler", name, (*path, "name"))
    if sampler is None:
        return
    check.check_keys(path, sampler, options, injected=("data_source", "dataset"), extra=("name",))
    if "data_source.ds_width" in source_of(sampler) and dataset is not None and not several_scales:
        message = (
            f"{name} gives image sizes, but {dataset_name} takes none. Fix: use MultiScaleDataSet, or remove the "
            f"sampler."
        )
        check.error((*path, "name"), "sampler_mismatch", message)
