"""Read from a config how many samples a training step has, and how processes share them; imports no Paddle."""

from __future__ import annotations

from ppocr_ext.base.parts import SCALE_SAMPLER
from ppocr_ext.config import Config
from ppocr_ext.data.preprocessing import is_positive_number

_BATCH_OF_LOADER = "Train.loader.batch_size_per_card"
_BATCH_OF_SAMPLER = 128  # PaddleOCR's default of first_bs
_MOST_SAMPLES = 10**9  # above it, a batch size is a mistake


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
    size, batches = batch_size(config), config.at("Global.accumulate", None)
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
