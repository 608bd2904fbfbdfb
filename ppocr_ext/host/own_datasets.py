"""Build loaders over datasets that are registered in this package, as PaddleOCR builds its own."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from paddle.io import BatchSampler, DataLoader, DistributedBatchSampler

from ppocr_ext.errors import ConfigError
from ppocr_ext.registry import DATASETS

_REQUIRED = ("batch_size_per_card", "drop_last", "shuffle", "num_workers")


def build_own_loader(
    config: dict[str, Any], mode: str, device: Any, logger: logging.Logger, seed: int | None, data: ModuleType
) -> DataLoader:
    """Return a loader over the dataset that ``config[mode]`` names and ``DATASETS`` holds.

    The dataset is called as PaddleOCR's are: ``(config, mode, logger, seed)``. Keys of
    ``loader`` and ``sampler`` are PaddleOCR's.

    Args:
        config: the whole configuration, plain, the caller's to keep: a copy that may be changed.
        mode: ``"Train"`` (batches divided over the processes), ``"Eval"`` or ``"Test"``.
        device: where batches are put.
        logger: handed to the dataset.
        seed: handed to the dataset.
        data: the host's ``ppocr.data``, where samplers and ``collate_fn`` come from.

    Raises:
        ConfigError: a key of the loader is missing, or a sampler or ``collate_fn`` is unknown.
    """
    section = config[mode]
    dataset = DATASETS.get(section["dataset"]["name"])(config, mode, logger, seed)
    loader = section["loader"]
    missing = [key for key in _REQUIRED if key not in loader]
    if missing:
        raise ConfigError(f"{mode}.loader lacks {', '.join(missing)}.", code="missing_key")
    return DataLoader(
        dataset=dataset,
        batch_sampler=_sampler(dataset, section, mode, data),
        places=device,
        num_workers=loader["num_workers"],
        return_list=True,
        use_shared_memory=loader.get("use_shared_memory", True),
        collate_fn=_collate(loader.get("collate_fn"), mode, data),
    )


def _sampler(dataset: Any, section: Mapping[str, Any], mode: str, data: ModuleType) -> Any:
    loader = section["loader"]
    chosen = section.get("sampler") if mode == "Train" else None
    if chosen:
        options = dict(chosen)
        name = options.pop("name")
        sampler = getattr(data, name, None)
        if sampler is None:
            raise ConfigError(
                f"{mode}.sampler.name: the host has no sampler {name!r}.", code="unknown_component"
            )
        return sampler(dataset, **options)
    kind = DistributedBatchSampler if mode == "Train" else BatchSampler
    return kind(
        dataset=dataset,
        batch_size=loader["batch_size_per_card"],
        shuffle=loader["shuffle"],
        drop_last=loader["drop_last"],
    )


def _collate(name: str | None, mode: str, data: ModuleType) -> Callable[..., Any] | None:
    if name is None:
        return None
    collate = getattr(importlib.import_module(f"{data.__name__}.collate_fn"), name, None)
    if collate is None:
        raise ConfigError(f"{mode}.loader.collate_fn: the host has no {name!r}.", code="unknown_component")
    return collate()
