"""Check keys and components of ``Train`` and ``Eval``: dataset, transforms, sampler, loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ppocr_ext.synth.synthetic_dataset  # noqa: F401 - registers its datasets
from ppocr_ext.base.parts import DATASETS as ROWS
from ppocr_ext.base.parts import SCALE_SAMPLER, kind_of, row_of
from ppocr_ext.check.config_check import DATA_KEYS, ConfigCheck
from ppocr_ext.config import Config
from ppocr_ext.data.preprocessing import read_preprocessing
from ppocr_ext.errors import PPOCRExtError
from ppocr_ext.registry import DATASETS, ComponentKeys

_SECTION = ("dataset", "loader", "sampler")
_TRAIN_ONLY = ("teacher_cache",)
_LOADER_REQUIRED = frozenset({"batch_size_per_card", "drop_last", "shuffle", "num_workers"})
_LOADER = ComponentKeys(frozenset(DATA_KEYS["loader"]), _LOADER_REQUIRED)


def check_data(check: ConfigCheck) -> None:
    """Check everything below ``Train`` and ``Eval``."""
    for mode in check.modes:
        _check_section(check, mode)


def _check_section(check: ConfigCheck, mode: str) -> None:
    section = check.mapping(mode)
    if not section:
        return
    misplaced = [key for part in DATA_KEYS for key in _check_indentation(check, mode, part)]
    known = (*_SECTION, *_TRAIN_ONLY) if mode == "Train" else _SECTION
    for key in section:
        if key not in known and key not in misplaced:
            check.unknown_key((mode, str(key)), known)
    keys = _check_dataset(check, mode)
    _check_transforms(check, mode)
    loader = check.mapping(mode, "loader")
    if loader:
        check.check_keys((mode, "loader"), _LOADER, loader)
    if loader.get("collate_fn") is not None:
        path = (mode, "loader", "collate_fn")
        check.host_component("collate_fn", loader["collate_fn"], path)
    _check_sampler(check, mode, keys)


def _check_indentation(check: ConfigCheck, mode: str, part: str) -> list[str]:
    """Report a ``part`` of a section that is missing, or whose keys stand beside it; return these keys."""
    empty = check.at(mode, part) is None
    beside = [key for key in DATA_KEYS[part] if key in check.at(mode) and check.at(mode, part, key) is None]
    above = [key for key in DATA_KEYS[part] if empty and key in check.config]
    if beside or above:
        path = (mode, beside[0]) if beside else (above[0],)
        keys = ", ".join(beside or above)
        check.error(
            path,
            "wrong_indentation",
            f"wrong indentation: {keys} must stand below `{part}:` of {mode}. Fix: indent further.",
        )
    elif empty:
        check.missing((mode, part))
    return beside


def _check_dataset(check: ConfigCheck, mode: str) -> ComponentKeys | None:
    """Check name and keys of the dataset; return the keys that it reads, None if that is not known."""
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
    return keys


def reads_key(config: Config, mode: str, key: str) -> bool:
    """Return True if the dataset of ``mode`` reads ``key``, or if that cannot be determined."""
    try:
        keys = dataset_keys(DATASETS.get(str(config.at(f"{mode}.dataset.name"))))
    except PPOCRExtError:  # there is no such dataset, which is reported with its name
        return True
    return keys is None or key in keys.named


def dataset_keys(dataset: Callable[..., Any]) -> ComponentKeys | None:
    """Return the keys that a dataset reads from its section, or None if that cannot be determined.

    A dataset of ours or of a plugin has a class method ``known_keys``; one of PaddleOCR's, and what a plugin derives
    from it, has a row in the table of parts.
    """
    row = row_of(dataset, ROWS)
    if hasattr(dataset, "known_keys"):
        return ComponentKeys(frozenset(dataset.known_keys()))
    return None if row is None else ComponentKeys(row.keys, row.needs, is_open=dataset.__name__ not in ROWS)


def _check_transforms(check: ConfigCheck, mode: str) -> None:
    """Check names and keys of the operators; each gets all of ``Global`` besides its own options."""
    given = [str(key) for key in check.mapping("Global")]
    names = []
    for name, path in check.items(mode, "dataset", "transforms"):
        names.append(name)
        operator = check.host_component("operator", name, path)
        if operator is None:
            continue
        options = check.mapping(*path)
        check.check_keys(path, operator, options, injected=given, extra=given)
        encode = options.get("gtc_encode")
        if name == "MultiLabelEncode" and encode is not None:
            check.host_component("operator", encode, (*path, "gtc_encode"))
    # a transform without a row may resize
    unsized = bool(names) and all(kind_of(name) in ("plain", "random") for name in names)
    dataset = ROWS.get(str(check.at(mode, "dataset", "name")))
    if unsized and dataset is not None and not dataset.of_one_size:
        other = read_preprocessing(check.config, "Eval" if mode == "Train" else "Train")
        size = list(other.sizes[0]) if other is not None and other.sizes else [3, 48, 320]
        check.error(
            (mode, "dataset", "transforms"),
            "missing_resize",
            f"no transform gives the images of a batch one size. Fix: add `- RecResizeImg: {{image_shape: {size}}}` "
            f"before KeepKeys.",
        )


def _check_sampler(check: ConfigCheck, mode: str, keys: ComponentKeys | None) -> None:
    """Check name and keys of the sampler, and that dataset and sampler agree on who gives image sizes."""
    path = (mode, "sampler")
    options = check.mapping(*path)
    # a dataset of several scales gets its image sizes from a sampler, which asks it for `ds_width`
    several_scales = keys is not None and "ds_width" in keys.named
    dataset_name = check.at(mode, "dataset", "name")
    name = options.get("name") if mode == "Train" else None
    if several_scales and name is None:
        fix = "give `sampler: {name: MultiScaleSampler, …}`" if mode == "Train" else "use SimpleDataSet"
        check.error(
            (mode, "dataset", "name"),
            "sampler_mismatch",
            f"{dataset_name} gets its image sizes from a sampler, and {mode} has none. Fix: {fix}.",
        )
    if not options:
        return
    if mode != "Train":
        check.warning(path, "unused_key", "a sampler is used only in Train.")
        return
    sampler = check.host_component("sampler", name, (*path, "name"))
    if sampler is None:
        return
    check.check_keys(path, sampler, options, injected=("data_source", "dataset"), extra=("name",))
    if name == SCALE_SAMPLER and keys is not None and not several_scales:
        check.error(
            (*path, "name"),
            "sampler_mismatch",
            f"{name} gives image sizes, but {dataset_name} takes none. Fix: use MultiScaleDataSet, or remove the "
            f"sampler.",
        )
