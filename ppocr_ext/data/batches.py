"""Positions of the entries of a batch after ``KeepKeys``, and the number of its samples; imports no Paddle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ppocr_ext.base.parts import SCALE_SAMPLER
from ppocr_ext.config import Config
from ppocr_ext.data.preprocessing import is_positive_number, sampler_scales

# PaddleOCR's losses read a batch by position, in this order.
SINGLE_HEAD = ("image", "label", "length", "valid_ratio")
MULTI_HEAD = ("image", "label_ctc", "label_gtc", "length", "valid_ratio")
_BATCH_OF_LOADER = "Train.loader.batch_size_per_card"
_BATCH_OF_SAMPLER = 128  # PaddleOCR's default of first_bs
_MOST_SAMPLES = 10**9  # above it, a batch size is a mistake


@dataclass(frozen=True)
class BatchLayout:
    """Positions of entries in a sample and in a batch; None for an entry that is not kept.

    Attributes:
        image: position of the image.
        label: position of the CTC label.
        second_label: position of the second label (NRTR or SAR).
        length: position of the length of the CTC label.
        valid_ratio: position of the share of the image's width that is not padding.
    """

    image: int | None = None
    label: int | None = None
    second_label: int | None = None
    length: int | None = None
    valid_ratio: int | None = None

    @classmethod
    def of_keys(cls, keys: Sequence[str]) -> BatchLayout:
        """Return the layout of the kept ``keys``, in their order."""

        def place(*names: str) -> int | None:
            return next((keys.index(name) for name in names if name in keys), None)

        return cls(
            image=place("image"),
            label=place("label_ctc", "label"),
            second_label=place("label_gtc", "label_sar"),
            length=place("length"),
            valid_ratio=place("valid_ratio"),
        )

    @classmethod
    def of_transforms(cls, transforms: Any) -> BatchLayout:
        """Return the layout that ``KeepKeys`` among ``transforms`` gives; all positions are None without it."""
        return cls.of_keys(kept_keys(transforms) or ())


SINGLE = BatchLayout.of_keys(SINGLE_HEAD)
MULTI = BatchLayout.of_keys(MULTI_HEAD)


def images_of(batch: Sequence[Any]) -> Any:
    """Return the images of a batch, which PaddleOCR puts first."""
    return batch[0]


def labels_of(batch: Sequence[Any]) -> list[Any]:
    """Return the entries of a batch behind the images, which a network takes as ``data``."""
    return list(batch[1:])


def equal_runs(samples: Sequence[Any]) -> list[list[Any]]:
    """Return samples in runs whose entries have equal shapes, in their order: images that are widened may differ."""
    return [
        list(run)
        for _, run in groupby(samples, lambda sample: [getattr(each, "shape", None) for each in sample])
    ]


def kept_keys(transforms: Any) -> tuple[str, ...] | None:
    """Return ``keep_keys`` of ``KeepKeys`` among ``transforms``; None without it."""
    for entry in transforms or ():
        options = entry.get("KeepKeys") if isinstance(entry, Mapping) else None
        if isinstance(options, Mapping) and options.get("keep_keys"):
            return tuple(str(key) for key in options["keep_keys"])
    return None


def batch_size_key(config: Config) -> str:
    """Return the config key of the batch size of one process."""
    scales = config.at("Train.sampler.name", None) == SCALE_SAMPLER
    return "Train.sampler.first_bs" if scales else _BATCH_OF_LOADER


def batch_size(config: Config) -> int | None:
    """Return the batch size of one process; None if the config does not give it.

    With a MultiScaleSampler it is ``first_bs``, the batch size of its first scale: the loader's is not used.
    """
    key = batch_size_key(config)
    size = config.at(key, None)
    if size is None and key != _BATCH_OF_LOADER:
        size = _BATCH_OF_SAMPLER
    return int(size) if is_positive_number(size) and 1 <= size < _MOST_SAMPLES else None


def batches_of_epoch(config: Config, samples: int, size: int) -> int:
    """Return the batches of an epoch of one process.

    A MultiScaleSampler makes whole rounds of its scales; without ``fix_bs``, batches of larger images are smaller.

    Args:
        config: that of ``Train``.
        samples: that train.
        size: as of :func:`batch_size`.
    """
    scales = sampler_scales(config, "Train")
    if batch_size_key(config) == _BATCH_OF_LOADER or not scales:
        cuts = config.at("Train.loader.drop_last", False) and samples >= size
        return samples // size if cuts else math.ceil(samples / size)
    sizes = [size] * len(scales)
    if config.at("Train.sampler.fix_bs", True) is False:
        pixels = math.prod(config.at("Train.sampler.scales")[0]) * size
        sizes = [max(1, pixels // (width * height)) for width, height in scales]
    return math.ceil(samples / sum(sizes)) * len(sizes)


def samples_per_step(config: Config, processes: int = 1) -> int | None:
    """Return the samples of an optimizer step over all processes; None if the config does not give them."""
    size = batch_size(config)
    return None if size is None else size * config.settings.accumulate * processes


def batch_share(config: Config, processes: int) -> tuple[str, str]:
    """Return the option that keeps the samples of a step with several processes, and a remark if only nearly.

    For example ``("-o KEY=4", "")`` or ``("-o KEY=4", " (nearly: 2 x 4)")``; two empty texts if a batch has fewer
    samples than there are processes.
    """
    size = batch_size(config)
    if size is None or size < processes:
        return "", ""
    each = round(size / processes)
    remark = "" if each * processes == size else f" (nearly: {processes} x {each})"
    return f"-o {batch_size_key(config)}={each}", remark
