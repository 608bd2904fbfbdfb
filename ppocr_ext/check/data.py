"""Keys and components of ``Train`` and ``Eval``: dataset, transforms, sampler, loader."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import ppocr_ext.synth.captcha_dataset  # noqa: F401 - registers CaptchaDataSet
from ppocr_ext.check.global_keys import DATA_KEYS
from ppocr_ext.check.look import Look
from ppocr_ext.check.signatures import Keys
from ppocr_ext.config import Config
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.registry import DATASETS

_SECTION = ("dataset", "loader", "sampler")
_ALWAYS = ("name", "transforms")
_NEVER_EMPTY = frozenset({"data_dir", "label_file_list", "transforms"})
_LOADER_REQUIRED = frozenset({"batch_size_per_card", "drop_last", "shuffle", "num_workers"})
_LOADER = Keys(frozenset(DATA_KEYS["loader"]), _LOADER_REQUIRED, open=False)
# How PaddleOCR's datasets read their section: `dataset_config["x"]`, `.get("x", …)`, `.pop("x")`.
_READING = re.compile(r"""(?:dataset_config|\["dataset"\])(?:\.(get|pop)\(|\[)\s*["'](\w+)["']""")
# A sampler of several scales asks the dataset for these, and hands it (width, height, index).
_SCALES_ATTRIBUTE = re.compile(r"\bself\.ds_width\b")


def check_data(look: Look, mode: str) -> None:
    """Everything below ``Train`` or ``Eval``."""
    section = look.mapping(mode)
    if not section:
        return
    misplaced = [key for part in DATA_KEYS for key in _check_indentation(look, mode, part)]
    for key in section:
        if key not in _SECTION and key not in misplaced:
            look.unknown_key((mode, str(key)), _SECTION)
    dataset = _check_dataset(look, mode)
    _check_transforms(look, mode)
    _check_loader(look, mode)
    _check_sampler(look, mode, dataset)


def _check_indentation(look: Look, mode: str, part: str) -> list[str]:
    """Report a ``part`` of a section that is not there or whose keys stand beside it; return these keys."""
    empty = look.at(mode, part) is None
    beside = [key for key in DATA_KEYS[part] if key in look.at(mode) and look.at(mode, part, key) is None]
    above = [key for key in DATA_KEYS[part] if empty and key in look.config]
    if beside or above:
        path = (mode, beside[0]) if beside else (above[0],)
        listed = ", ".join(beside or above)
        look.error(
            path, f"wrong indentation: {listed} must stand below `{part}:` of {mode}. Fix: indent further."
        )
    elif empty:
        look.error((mode,), f"{part} must be given.", part)
    return beside


def _check_dataset(look: Look, mode: str) -> Callable[..., Any] | None:
    path = (mode, "dataset")
    options = look.mapping(*path)
    if not options:
        return None
    if options.get("name") is None:
        said = f"name must be given, such as SimpleDataSet or {', '.join(DATASETS.names())}."
        look.error(path, said, "name")
        return None
    dataset = look.component(DATASETS, options["name"], (*path, "name"))
    keys = None if dataset is None else dataset_keys(dataset)
    if keys is not None:
        look.compare(path, keys, options, extra=_ALWAYS)
        for key in sorted(_NEVER_EMPTY & keys.required & options.keys()):
            if options[key] in (None, ()):
                look.error((*path, key), "is empty, but must be given.")
    return dataset


def reads_key(config: Config, mode: str, key: str) -> bool:
    """Whether the dataset of ``mode`` reads ``key`` of its section; so does one of which that cannot be told."""
    try:
        keys = dataset_keys(DATASETS.get(str(config.at(f"{mode}.dataset.name"))))
    except PPOCRExtError:  # there is no such dataset, which is said elsewhere
        return True
    return keys is None or key in keys.named


@cache
def dataset_keys(dataset: Callable[..., Any]) -> Keys | None:
    """Keys that a dataset reads from its section; None where that cannot be told.

    A dataset of ours, or of a plugin, says so itself (class method ``known_keys``); one of PaddleOCR's has
    them in its source.
    """
    tell = getattr(dataset, "known_keys", None)
    if tell is not None:
        return Keys(frozenset(tell()), frozenset(), open=False)
    readings = _READING.findall(source_of(dataset))
    if not readings:
        return None
    named = frozenset(name for _, name in readings)
    return Keys(named, frozenset(name for how, name in readings if how != "get") - {"name"}, open=False)


@cache
def source_of(component: Callable[..., Any]) -> str:
    """The source of a class and of those that it is derived from, Paddle's left out; of a function its own."""
    several = component.__mro__ if isinstance(component, type) else (component,)
    texts = []
    for each in several:
        if getattr(each, "__module__", "builtins").partition(".")[0] in ("builtins", "paddle"):
            continue
        try:
            texts.append(inspect.getsource(each))
        except (OSError, TypeError):
            continue
    return "\n".join(texts)


def _check_transforms(look: Look, mode: str) -> None:
    """Names and keys of the operators; each is given all of ``Global`` besides its own options."""
    if look.at(mode, "dataset", "transforms") is None:
        return
    given = [str(key) for key in look.mapping("Global")]
    for name, path in look.listed(mode, "dataset", "transforms"):
        operator = look.part("operator", "transform", name, path)
        if operator is None:
            continue
        options = look.mapping(*path)
        look.keys(path, operator, options, injected=given, extra=given)
        encode = options.get("gtc_encode")
        if name == "MultiLabelEncode" and encode is not None:
            look.part("operator", "label encoder", encode, (*path, "gtc_encode"))


def _check_loader(look: Look, mode: str) -> None:
    path = (mode, "loader")
    options = look.mapping(*path)
    if not options:
        return
    look.compare(path, _LOADER, options)
    collate = options.get("collate_fn")
    if collate is not None:
        look.part("collate_fn", "collate_fn", collate, (*path, "collate_fn"))


def _check_sampler(look: Look, mode: str, dataset: Callable[..., Any] | None) -> None:
    path = (mode, "sampler")
    options = look.mapping(*path)
    several_scales = dataset is not None and _SCALES_ATTRIBUTE.search(source_of(dataset)) is not None
    name = options.get("name") if mode == "Train" else None
    if several_scales and name is None:
        remedy = (
            "It needs `sampler: {name: MultiScaleSampler, …}`." if mode == "Train" else "Use SimpleDataSet."
        )
        look.error(
            (mode, "dataset", "name"),
            f"{look.at(mode, 'dataset', 'name')} takes its image sizes from a sampler, and {mode} has none. {remedy}",
        )
    if not options:
        return
    if mode != "Train":
        look.warning(path, "a sampler is used in Train alone.")
        return
    if name is None:
        look.error(path, "name must be given, such as MultiScaleSampler.", "name")
        return
    sampler = look.part("sampler", "sampler", name, (*path, "name"))
    if sampler is None:
        return
    look.keys(path, sampler, look.options(*path), injected=("data_source", "dataset"), extra=("name",))
    if _needs_scales(sampler) and dataset is not None and not several_scales:
        look.error(
            (*path, "name"),
            f"{name} hands out image sizes, which {look.at(mode, 'dataset', 'name')} does not take. Use "
            f"MultiScaleDataSet, or remove the sampler.",
        )


def _needs_scales(sampler: Callable[..., Any]) -> bool:
    return "data_source.ds_width" in source_of(sampler)
