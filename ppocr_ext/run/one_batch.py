"""Take one batch of a config's own training data, without augmentation: to learn it by heart, and to try teachers.

A frozen teacher that reads it no better than chance is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from paddle import Tensor, nn
from rapidfuzz.distance import Levenshtein

from ppocr_ext.base.parts import BRANCHES, kind_of
from ppocr_ext.check.sub_models import ALLOW_UNTRAINED
from ppocr_ext.config import Config, named_items
from ppocr_ext.config.node import dotted
from ppocr_ext.data.batches import images_of
from ppocr_ext.data.sample_seeds import generators_kept
from ppocr_ext.errors import DataError, WeightsError
from ppocr_ext.issues import Issue, report_issues
from ppocr_ext.messages import LOG
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.modeling.heads import CTCHead, Transformer
from ppocr_ext.run.context import RunContext
from ppocr_ext.run.dry_samples import DrySection
from ppocr_ext.run.frame_counts import count_frames

LINES = 64
_FEWEST = 8  # different labels; of fewer, chance decides
_SURE = 2.0  # standard deviations above chance, of LINES samples; fewer samples need less: chance shall refuse nobody
_SINGLE_HEADS = {CTCHead: {"ctc"}, Transformer: {"gtc"}}
_TRANSFORMS = ("Train", "dataset", "transforms")


@dataclass(frozen=True, eq=False)
class OneBatch:
    """One batch of ``Train``.

    Attributes:
        entries: what KeepKeys keeps: the images [B, C, H, W], then the labels.
        left_out: names of the transforms that are left out, since they change images at random.
        texts: the label of each sample before it is encoded; empty if unknown.
        size: (width, height) that a sampler of several sizes is held to; None if there is no such sampler.
    """

    entries: list[Tensor]
    texts: list[str]
    left_out: tuple[str, ...]
    size: tuple[int, int] | None

    @property
    def samples(self) -> int:
        """How many samples the batch has."""
        return int(self.images.shape[0])

    @property
    def images(self) -> Tensor:
        """The images [B, C, H, W]."""
        return images_of(self.entries)


def one_batch(context: RunContext, network: nn.Layer, samples: int) -> OneBatch:
    """Return the first usable samples of ``Train``, each with a text of its own.

    Args:
        context: of a training.
        network: the networks, which say how many frames a label has to fit.
        samples: how many at most; the batch size of the config is a limit too.

    Raises:
        DataError: no sample is usable.
        InvalidConfigError: a transform or the dataset fails.
    """
    config, left_out, size = _same_every_time(context.components)
    frames = count_frames(network, config, "Train").limit(required=True)
    issues: list[Issue] = []

    def report(code: str, path: tuple[str, ...], message: str) -> None:
        issues.append(Issue(code, "error", dotted(path), "", message))

    with TemporaryDirectory(prefix="ppocr_ext_") as folder, generators_kept():
        section = DrySection(
            config, "Train", context.charset, context.host, Path(folder), report, samples, frames
        )
        batch = section.batch(context.seed)
    report_issues(issues)
    if batch is None or batch.drawn:
        raise DataError(
            "Train: there is no usable sample to learn (1,000 of each file were tried). Fix: `ppocr-ext config --check "
            "--data -c CONFIG` says what is wrong with them.",
            code="no_samples",
        )
    return OneBatch(batch.entries, [text or "" for text in batch.texts], left_out, size)


def _same_every_time(config: Config) -> tuple[Config, tuple[str, ...], tuple[int, int] | None]:
    """Return ``config`` without random transforms and with one size of images, and what was changed."""
    random = [item for item in named_items(config, *_TRANSFORMS) if kind_of(item[0]) == "random"]
    config = config.without([path for _, path in reversed(random)])  # in this order no index changes
    left_out = tuple(name for name, _ in random)
    scales = config.at("Train.sampler.scales", default=None)
    if not isinstance(scales, tuple) or not scales:
        return config, left_out, None
    sizes = [tuple(scale) if isinstance(scale, tuple) else (scale, scale) for scale in scales]
    size = sorted(sizes, key=lambda each: each[::-1])[len(sizes) // 2]  # of the middle height
    return config.with_values({"Train.sampler.scales": [list(size)]}), left_out, size


def require_reading_teachers(context: RunContext, model: nn.Layer, names: Sequence[str]) -> None:
    """Read :data:`LINES` samples of ``Train`` without augmentation by each frozen teacher, with CTC and NRTR.

    Process 0 does so, once: not in a resumed run. Neither teachers nor random generators change. Not checked: a teacher
    with none of these branches, and fewer than :data:`_FEWEST` different labels.

    Args:
        context: of a training.
        model: the networks with their weights, not wrapped.
        names: the teachers.

    Raises:
        WeightsError: the texts that a teacher reads are not nearer to the labels than to those of other samples.
    """
    config = context.components
    if not names or not context.is_first or context.checkpoint or config.settings.allow_untrained_teacher:
        return
    wide = config.with_values(
        {
            key: LINES
            for key in ("Train.loader.batch_size_per_card", "Train.sampler.first_bs")
            if config.at(key, None)
        }
    )
    batch = one_batch(replace(context, components=wide), model, LINES)
    for name in names if len(set(batch.texts)) >= _FEWEST else ():
        teacher = model.models[name]
        branches = getattr(teacher.head, "branches", _SINGLE_HEADS.get(type(teacher.head), set()))
        found = {
            branch: likeness(_texts(context, teacher, batch.images, branch), batch.texts)
            for branch in sorted({"ctc", "gtc"} & set(branches))
        }
        said = "; ".join(
            f"{branch} {own:.2f}, by chance {chance:.2f}" for branch, (own, chance) in found.items()
        )
        LOG.info("%s reads %d samples of Train; likeness to their labels: %s", name, batch.samples, said)
        if found and all(own <= chance for own, chance in found.values()):
            raise WeightsError(
                f"{name} is frozen, but cannot read Train: its texts of {batch.samples} samples are not nearer to "
                f"their labels than to others (likeness: {said}).\n  Probable causes: a dictionary in another order "
                f"than its own, a wrong file, another image size or normalisation.\n"
                f"Fix: correct that; to train so: -o Global.{ALLOW_UNTRAINED}=true.",
                code="teacher_cannot_read",
            )


def _texts(context: RunContext, teacher: nn.Layer, images: Tensor, branch: str) -> list[str]:
    """Return what a branch of a frozen network reads of images [B, C, H, W], by the host's decoder."""
    request = HeadRequest(frozenset({branch}), probabilities=True, decode=True, as_dict=False)
    output = teacher(images, None, request)
    decoder: Any = context.host.build_post_process(
        {"name": BRANCHES[branch].decoder}, context.config.host_options()
    )
    decoder.reverse = False  # PaddleOCR turns Arabic texts, and their labels in the same way
    read = decoder(output["head_out"] if isinstance(output, dict) else output)
    return [str(text[0]) for text in read]


def likeness(texts: Sequence[str], labels: Sequence[str]) -> tuple[float, float]:
    """Return the mean likeness (1 - normalised edit distance) of texts to their labels, and what chance may reach.

    Chance: the mean over all shifts of the labels among the samples, and a margin. A label that takes the place of
    another is filled up from those behind it, or cut, to its length: that of a text alone is no sign of reading.
    """
    count = len(texts)
    stream = "".join(labels) * 2
    starts = [0, *accumulate(map(len, labels))]
    means = []
    for shift in range(count):
        others = [
            stream[start : start + len(label)]
            for start, label in zip(starts[shift:count] + starts[:shift], labels, strict=True)
        ]
        means.append(float(np.mean(list(map(Levenshtein.normalized_similarity, texts, others)))))
    chance = float(np.mean(means[1:]) + _SURE * min(1.0, count / LINES) * np.std(means[1:]))
    return means[0], min(0.5, chance)  # what is nearer than that was read
