"""Take one batch of ``Train`` without augmentation, which a network can learn by heart, or a teacher can read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from paddle import Tensor, nn

from ppocr_ext.base.parts import kind_of
from ppocr_ext.check.findings import Findings
from ppocr_ext.config import Config, named_items
from ppocr_ext.data.batches import images_of
from ppocr_ext.data.sample_seeds import generators_kept
from ppocr_ext.errors import DataError
from ppocr_ext.issues import report_issues
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.dry_samples import DrySection
from ppocr_ext.run.frame_counts import count_frames

_TRANSFORMS = ("Train", "dataset", "transforms")


@dataclass(frozen=True, eq=False)
class OneBatch:
    """One batch of ``Train``.

    Attributes:
        entries: the entries that KeepKeys keeps: the images [B, C, H, W], then the labels.
        left_out: names of the random transforms that are left out.
        texts: the label of each sample before it is encoded; empty if unknown.
        size: the only (width, height) of a sampler with several sizes; None without such a sampler.
    """

    entries: list[Tensor]
    texts: list[str]
    left_out: tuple[str, ...]
    size: tuple[int, int] | None

    @property
    def samples(self) -> int:
        """The number of samples in the batch."""
        return int(self.images.shape[0])

    @property
    def images(self) -> Tensor:
        """The images [B, C, H, W]."""
        return images_of(self.entries)


def one_batch(context: RunContext, network: nn.Layer, samples: int) -> OneBatch:
    """Return the first usable samples of ``Train`` with different labels, without augmentation.

    Args:
        context: the context of a training.
        network: the networks; their number of frames limits the labels.
        samples: the highest number of samples; the batch size of the config is a limit too.

    Raises:
        DataError: no sample is usable.
        InvalidConfigError: a transform or the dataset fails.
    """
    config, left_out, size = _same_every_time(context.components)
    frames = count_frames(network, config, "Train").limit(required=True)
    findings = Findings(config)
    with TemporaryDirectory(prefix="ppocr_ext_") as folder, generators_kept():
        alone = replace(context, components=config)
        batch = DrySection(alone, "Train", Path(folder), findings, samples, frames).batch()
    report_issues(findings.issues)
    if batch is None or batch.drawn:
        raise DataError(
            "Train: there is no usable sample to learn (1,000 of each file were tried). Fix: `ppocr-ext config --check "
            "--data -c CONFIG` says what is wrong with them.",
            code="no_samples",
        )
    return OneBatch(batch.entries, [text or "" for text in batch.texts], left_out, size)


def _same_every_time(config: Config) -> tuple[Config, tuple[str, ...], tuple[int, int] | None]:
    """Return ``config`` without random transforms and with one size of images, and both changes."""
    random = [item for item in named_items(config, *_TRANSFORMS) if kind_of(item[0]) == "random"]
    config = config.without([path for _, path in reversed(random)])  # from the end, so that no index changes
    left_out = tuple(name for name, _ in random)
    scales = config.at("Train.sampler.scales", default=None)
    if not isinstance(scales, tuple) or not scales:
        return config, left_out, None
    sizes = [tuple(scale) if isinstance(scale, tuple) else (scale, scale) for scale in scales]
    size = sorted(sizes, key=lambda each: each[::-1])[len(sizes) // 2]  # the size in the middle, by height
    return config.with_values({"Train.sampler.scales": [list(size)]}), left_out, size
