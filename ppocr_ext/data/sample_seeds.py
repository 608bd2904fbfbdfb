"""Give each sample random numbers of its own, so that a resumed run augments as an unbroken one does.

PaddleOCR's transforms draw from the two generators of the process, ``random`` and ``numpy.random``. Without this
module, their numbers would depend on all samples before, on the number of workers, and on other threads that draw.

With :class:`Views`, each sample of ``Train`` is augmented in the same K ways again and again, so that the outputs of a
teacher can be stored. The random numbers of a view follow from a seed, the sample and the number of the view; its place
in the data, the epoch, the process and ``Global.seed`` do not matter. The same holds for its image size, where a
sampler gives samples different sizes. Samples of one size are batched together, in other batches in each epoch.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from paddle.io import BatchSampler, DistributedBatchSampler

from ppocr_ext.data.load_failures import sample_key
from ppocr_ext.data.mixing import MixedSamples
from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import LOG

SCHEME = 1  # version of the rule that makes the seeds; a checkpoint stores it
CACHE_FACTS = "cache.json"  # in the folder of a teacher cache: which views are stored
Batch = list[Any]

# The generators belong to the process, and so does their lock. One thread may load a sample while another forks worker
# processes: a worker must get neither a lock that nobody releases nor generators seeded for that sample.
_LOCK = threading.RLock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Keep other users of this function waiting, and restore both generators at the end."""
    with _LOCK:
        before = generators_state()
        try:
            yield
        finally:
            set_generators(before)


@contextmanager
def generators_seeded(*seed: int) -> Iterator[None]:
    """Seed both generators from all numbers of ``seed``, inside :func:`generators_kept`."""
    digest = hashlib.blake2b("/".join(map(str, seed)).encode(), digest_size=32).digest()
    with generators_kept():
        # Each gets half of the digest, since both would give the same numbers with one seed.
        random.seed(int.from_bytes(digest[:16], "big"))
        np.random.seed(np.frombuffer(digest[16:], "<u4"))
        yield


def generators_state() -> tuple[Any, Any]:
    """Return the state of both generators."""
    return random.getstate(), np.random.get_state(legacy=False)


def set_generators(state: tuple[Any, Any]) -> None:
    """Put both generators into ``state``."""
    random.setstate(state[0])
    np.random.set_state(state[1])


def warn_of_other_seeds(scheme: int | None, prefix: Path) -> None:
    """Warn if the run of the checkpoint ``prefix``, which stores ``scheme``, made its random numbers in another way."""
    if scheme != SCHEME:
        LOG.warning(
            "%s was written by PaddleOCR: from here on, samples are augmented with other random numbers than that run "
            "would have used.",
            prefix,
        )


@dataclass(frozen=True)
class Views:
    """The views of a data set.

    Attributes:
        seed: the seed of all their random numbers.
        count: K; epoch e shows view e mod K.
    """

    seed: int
    count: int

    def of_epoch(self, epoch: int) -> int:
        """Return the view that an epoch shows."""
        return epoch % self.count

    def sample_seed(self, key: bytes, view: int) -> tuple[int, ...]:
        """Return the seed of a sample in a view; ``key`` identifies the sample."""
        digest = hashlib.blake2b(key, digest_size=8).digest()
        return (self.seed, view, int.from_bytes(digest, "little"))

    def order(self, keys: Sequence[bytes], view: int) -> np.ndarray:
        """Return the places of the samples in a random order that depends only on their keys, int64 [N]."""
        drawn = [
            hashlib.blake2b(key, digest_size=8, key=f"{self.seed}/{view}".encode()).digest() for key in keys
        ]
        return np.argsort(np.array(drawn, dtype="S8"), kind="stable")


@dataclass(frozen=True)
class BatchSize:
    """An image size, and how many samples a batch of it has.

    Attributes:
        index: returns the index for the dataset, from the place of a sample.
        samples: samples in a batch.
    """

    index: Callable[[int], Any]
    samples: int


# the sizes that samples may have, and the places of these samples
Group = tuple[Sequence[BatchSize], np.ndarray]


class ViewBatches:
    """The batches of each view and epoch, as lists of indices.

    Args:
        views: their number and seed.
        groups: the samples.
        key: returns what identifies the sample at a place.
        shuffle: shuffle the samples in each epoch.
        drop_last: leave out batches that are not full.
        further: groups that are in each view, but not in the batches of an epoch.
    """

    def __init__(
        self,
        views: Views,
        groups: Sequence[Group],
        key: Callable[[int], bytes],
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        further: Sequence[Group] = (),
    ) -> None:
        self.views = views
        self._groups = groups
        self._further = further
        self._key = key
        self._shuffle = shuffle
        self._drop_last = drop_last

    def of_view(self, view: int) -> list[Batch]:
        """Return all samples of a view in batches, each once, always in this order."""
        sized = self._sized([*self._groups, *self._further], view)
        return [batch for size, places in sized for batch in _cut(size, places, False)]

    def of_epoch(self, epoch: int, seed: int, rank: int = 0, processes: int = 1) -> list[Batch]:
        """Return the batches of one process in an epoch. All epochs and processes have the same number of batches.

        Args:
            epoch: number of the epoch, which decides the view.
            seed: the seed of the order.
            rank: number of the process.
            processes: how many processes share the batches. The first batches are repeated to give all the same number.
        """
        draw = np.random.default_rng([seed, epoch])
        batches = []
        for size, places in self._sized(self._groups, self.views.of_epoch(epoch)):
            mixed = draw.permutation(places) if self._shuffle else places
            batches += _cut(size, mixed, self._drop_last)
        if self._shuffle:
            batches = [batches[number] for number in draw.permutation(len(batches))]
        lacking = -len(batches) % processes if batches else 0
        return (batches + (batches * lacking)[:lacking])[rank::processes]

    def _sized(self, groups: Sequence[Group], view: int) -> list[tuple[BatchSize, np.ndarray]]:
        """Return the samples of each size. A size has the same number of samples in all views."""
        sized: list[tuple[BatchSize, np.ndarray]] = []
        for sizes, places in groups:
            if len(sizes) == 1:
                sized.append((sizes[0], places))
                continue
            order = places[self.views.order([self._key(int(place)) for place in places], view)]
            shares = np.array([0, *accumulate(size.samples for size in sizes)], float)
            ends = np.round(shares / shares[-1] * len(order)).astype(int)
            parts = zip(sizes, ends, ends[1:], strict=False)
            sized += [(size, np.sort(order[first:last])) for size, first, last in parts]
        return sized


class ShareOfBatches(DistributedBatchSampler):
    """Paddle's sampler, with the same batches; it needs an array with 4 bytes for each sample, instead of lists."""

    def __iter__(self) -> Iterator[list[int]]:
        """Return the batches of this process."""
        order = np.resize(np.arange(len(self.dataset), dtype=np.uint32), self.total_size)
        if self.shuffle:
            np.random.RandomState(self.epoch).shuffle(order)
            self.epoch += 1
        step = self.batch_size * self.nranks
        whole = len(order) - len(order) % step
        for first in range(self.local_rank * self.batch_size, whole, step):
            yield order[first : first + self.batch_size].tolist()
        share = (len(order) - whole) // self.nranks
        if share and not self.drop_last:
            first = whole + self.local_rank * share
            yield order[first : first + share].tolist()


def _cut(size: BatchSize, places: np.ndarray, drop_last: bool) -> list[Batch]:
    whole = len(places) - len(places) % size.samples if drop_last else len(places)
    return [
        [size.index(int(place)) for place in places[first : first + size.samples]]
        for first in range(0, whole, size.samples)
    ]


def groups_of_scales(
    scales: Sequence[tuple[int, int, int]], ratios: Sequence[float] | None, count: int, widest: float
) -> list[Group]:
    """Return the groups of a multi-scale sampler, for :class:`ViewBatches`.

    Args:
        scales: width, height and batch size of each scale.
        ratios: width to height of each sample, if images keep their ratio (``ds_width``); None if they do not.
        count: number of samples.
        widest: the greatest width with ``ratios``.
    """

    def size(width: int, height: int, samples: int, ratio: int | None) -> BatchSize:
        return BatchSize(lambda place: (width, height, place, ratio), samples)

    scales = sorted(scales)
    if ratios is None:
        return [([size(*scale, None) for scale in scales], np.arange(count))]
    lowest = min(height for _, height, _ in scales)
    rounded = np.clip(np.round(np.asarray(ratios, float)), 1, max(1, int(widest // lowest))).astype(int)
    return [
        (
            [
                size(width, height, samples, min(ratio, max(1, int(widest // height))))
                for width, height, samples in scales
            ],
            np.flatnonzero(rounded == ratio),
        )
        for ratio in np.unique(rounded).tolist()
    ]


def view_batches(dataset: Any, sampler: Any, views: Views) -> ViewBatches:
    """Return the batches of the views, with the batch sizes of the sampler.

    Raises:
        ConfigError: this kind of sampler is not supported.
    """
    key = partial(sample_key, dataset)
    further = dataset.ends if isinstance(dataset, MixedSamples) else []
    scales = getattr(sampler, "img_batch_pairs", None)  # only PaddleOCR's MultiScaleSampler has it
    if scales is not None and further:
        raise ConfigError(
            "Train.mix: with a MultiScaleSampler, its images get the size of their batch, so a teacher cache cannot "
            "hold them. Fix: remove Train.sampler, Train.mix or Train.teacher_cache.",
            code="conflicting_keys",
        )
    if scales is not None:
        ratios = sampler.wh_ratio[sampler.wh_ratio_sort] if sampler.ds_width else None
        return ViewBatches(views, groups_of_scales(scales, ratios, len(dataset), sampler.max_w), key)
    if not isinstance(sampler, BatchSampler):
        raise ConfigError(
            f"Train.teacher_cache: batches of {type(sampler).__name__} cannot be made of views. Fix: remove "
            f"Train.sampler, or use MultiScaleSampler.",
            code="unsupported_component",
        )
    size = BatchSize(lambda place: place, sampler.batch_size)
    shuffle = bool(getattr(sampler, "shuffle", False))
    return ViewBatches(
        views,
        [([size], np.arange(len(dataset)))],
        key,
        shuffle=shuffle,
        drop_last=sampler.drop_last,
        further=[([size], np.arange(*each)) for each in pairwise(further)],
    )


def warn_of_other_views(before: Mapping[str, int] | None, views: Views | None, prefix: Path) -> None:
    """Warn if the run of the checkpoint ``prefix``, which stores ``before``, had other views, or none."""
    now = None if views is None else asdict(views)
    if before != now:
        LOG.warning(
            "%s: that run had a teacher cache with %s, this one has %s: from here on, samples are augmented and "
            "batched in another way. To go on as before, set the same Train.teacher_cache.",
            prefix,
            f"views {dict(before)}" if before else "no views",
            f"views {now}" if now else "no views",
        )
