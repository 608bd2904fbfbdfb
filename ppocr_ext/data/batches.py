"""Where the entries of a batch stand after ``KeepKeys``, which nobody else counts, and how many samples it has.

Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ppocr_ext.base.parts import SCALE_SAMPLER
from ppocr_ext.config import Config
from ppocr_ext.data.preprocessing import is_positive_number

# PaddleOCR's order, by which its losses read a batch
SINGLE_HEAD = ("image", "label", "length", "valid_ratio")
MULTI_HEAD = ("image", "label_ctc", "label_gtc", "length", "valid_ratio")
_BATCH_OF_LOADER = "Train.loader.batch_size_per_card"
_BATCH_OF_SAMPLER = 128  # PaddleOCR's default of first_bs
_MOST_SAMPLES = 10**9  # above it, a batch size is a mistake


@dataclass(frozen=True)
class BatchLayout:
    """Positions in a sample, and so in a batch; None where an entry is not kept.

    Attributes:
        image: of the image.
        label: of the CTC label.
        second_label: of the label of NRTR or SAR beside it.
        length: of the length of the CTC label.
        valid_ratio: of the share of the image's width that is not padding.
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
        """Return the layout that ``KeepKeys`` among ``transforms`` gives; without one, nothing is known."""
        return cls.of_keys(kept_keys(transforms) or ())


SINGLE = BatchLayout.of_keys(SINGLE_HEAD)
MULTI = BatchLayout.of_keys(MULTI_HEAD)


def images_of(batch: Sequence[Any]) -> Any:
    """Return the images of a batch, which PaddleOCR puts first."""
    return batch[0]


def labels_of(batch: Sequence[Any]) -> list[Any]:
    """Return the entries of a batch behind the images, which a network takes as ``data``."""
    return list(batch[1:])


def kept_keys(transforms: Any) -> tuple[str, ...] | None:
    """Return ``keep_keys`` of ``KeepKeys`` among ``transforms``; None where there is none."""
    for entry in transforms or ():
        options = entry.get("KeepKeys") if isinstance(entry, Mapping) else None
        if isinstance(options, Mapping) and options.get("keep_keys"):
            return tuple(str(key) for key in options["keep_keys"])
    return None


def batch_size_key(config: Config) -> str:
    """Return the key of the batch size of a process."""
    scales = config.at("Train.sampler.name", None) == SCALE_SAMPLER
    return "Train.sampler.first_bs" if scales else _BATCH_OF_LOADER


def batch_size(config: Config) -> int | None:
    """Return the batch size of a process; None if the config does not give it.

    A MultiScaleSampler's ``first_bs`` counts, which holds for its first scale; the loader's batch size is not used
    with it.
    """
    size = config.at(batch_size_key(config), None)
    if size is None and batch_size_key(config) != _BATCH_OF_LOADER:
        size = _BATCH_OF_SAMPLER
    return int(size) if is_positive_number(size) and 1 <= size < _MOST_SAMPLES else None


def samples_per_step(config: Config, processes: int = 1) -> int | None:
    """Return the samples of an optimizer step over all processes; None if the config does not give them."""
    size = batch_size(config)
    batches = config.settings.accumulate
    batches = batches if isinstance(batches, int) and batches > 1 else 1
    return None if size is None else size * batches * processes


def batch_share(config: Config, processes: int) -> tuple[str, str]:
    """Return the option with which a step of several processes keeps its samples, and a remark if it nearly does.

    ``("-o KEY=4", "")``, ``("-o KEY=4", " (nearly: 2 x 4)")``, or two empty texts if they cannot be shared.
    """
    size = batch_size(config)
    if size is None or size < processes:
        return "", ""
    each = round(size / processes)
    remark = "" if each * processes == size else f" (nearly: {processes} x {each})"
    return f"-o {batch_size_key(config)}={each}", remark
