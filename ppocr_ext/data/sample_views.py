"""Views: each sample of ``Train`` is augmented in the same K ways again, so that a teacher's outputs can be kept.

What a view draws follows from a seed, the sample itself and the number of the view; not from its place in the data, the
epoch, the process or ``Global.seed``. So does its image size, where a sampler gives samples different ones. Samples of
one size are batched together, in other batches in each epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.messages import LOG

Batch = list[Any]
CACHE_FACTS = "cache.json"  # in the folder of a teacher cache; it says which views are stored


@dataclass(frozen=True)
class Views:
    """The views of a data set.

    Attributes:
        seed: of all that is drawn in them.
        count: K; epoch e shows view e mod K.
    """

    seed: int
    count: int

    def of_epoch(self, epoch: int) -> int:
        """Return the view that an epoch shows."""
        return epoch % self.count

    def sample_seed(self, key: bytes, view: int) -> tuple[int, ...]:
        """Return what the random numbers of a sample come from; ``key`` tells it from others."""
        digest = hashlib.blake2b(key, digest_size=8).digest()
        return (self.seed, view, int.from_bytes(digest, "little"))

    def order(self, keys: Sequence[bytes], view: int) -> np.ndarray:
        """Return the places of the samples in a random order, int64 [N]; each is drawn for its sample alone."""
        drawn = [
            hashlib.blake2b(key, digest_size=8, key=f"{self.seed}/{view}".encode()).digest() for key in keys
        ]
        return np.argsort(np.array(drawn, dtype="S8"), kind="stable")


@dataclass(frozen=True)
class BatchSize:
    """A size of images and of batches.

    Attributes:
        index: returns the index of a dataset for the place of a sample.
        samples: in a batch.
    """

    index: Callable[[int], Any]
    samples: int


class ViewBatches:
    """The batches of each view and epoch, as lists of indices.

    Args:
        views: how many, and their seed.
        groups: sizes that the samples of a group may have, and the places of these samples.
        key: returns what tells the sample at a place from others.
        shuffle: mix the samples anew in each epoch.
        drop_last: leave out batches that are not full.
    """

    def __init__(
        self,
        views: Views,
        groups: Sequence[tuple[Sequence[BatchSize], np.ndarray]],
        key: Callable[[int], bytes],
        *,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        self.views = views
        self._groups = groups
        self._key = key
        self._shuffle = shuffle
        self._drop_last = drop_last

    def of_view(self, view: int) -> list[Batch]:
        """Return all samples of a view in batches, each once, always in this order."""
        return [batch for size, places in self._sized(view) for batch in _cut(size, places, False)]

    def of_epoch(self, epoch: int, seed: int, rank: int = 0, processes: int = 1) -> list[Batch]:
        """Return the batches of one process in an epoch; all epochs and processes have the same number.

        Args:
            epoch: shows one view.
            seed: of the order.
            rank: of the process.
            processes: that share the batches; the first batches fill up the last shares.
        """
        draw = np.random.default_rng([seed, epoch])
        batches = []
        for size, places in self._sized(self.views.of_epoch(epoch)):
            mixed = draw.permutation(places) if self._shuffle else places
            batches += _cut(size, mixed, self._drop_last)
        if self._shuffle:
            batches = [batches[number] for number in draw.permutation(len(batches))]
        lacking = -len(batches) % processes if batches else 0
        return (batches + (batches * lacking)[:lacking])[rank::processes]

    def _sized(self, view: int) -> list[tuple[BatchSize, np.ndarray]]:
        """Return the samples of each size; the numbers of samples are the same in all views."""
        found = []
        for sizes, places in self._groups:
            if len(sizes) == 1:
                found.append((sizes[0], places))
                continue
            order = places[self.views.order([self._key(int(place)) for place in places], view)]
            shares = np.array([0, *accumulate(size.samples for size in sizes)], float)
            ends = np.round(shares / shares[-1] * len(order)).astype(int)
            found += [
                (size, np.sort(order[first:last]))
                for size, first, last in zip(sizes, ends, ends[1:], strict=False)
            ]
        return found


def _cut(size: BatchSize, places: np.ndarray, drop_last: bool) -> list[Batch]:
    whole = len(places) - len(places) % size.samples if drop_last else len(places)
    return [
        [size.index(int(place)) for place in places[first : first + size.samples]]
        for first in range(0, whole, size.samples)
    ]


def groups_of_scales(
    scales: Sequence[tuple[int, int, int]], ratios: Sequence[float] | None, count: int, widest: float
) -> list[tuple[list[BatchSize], np.ndarray]]:
    """Return the groups of a multi-scale sampler, for :class:`ViewBatches`.

    Args:
        scales: width, height and samples of a batch.
        ratios: width to height of each sample, if images keep it (``ds_width``).
        count: samples.
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


def warn_of_other_views(before: Mapping[str, int] | None, views: Views | None, prefix: Path) -> None:
    """Warn if the run of a checkpoint, which stores ``before``, drew its samples in other views or in none."""
    now = None if views is None else asdict(views)
    if before != now:
        LOG.warning(
            "%s: the teacher cache of that run had %s, and that of this one has %s: from here on, samples are drawn "
            "and batched otherwise. To go on as before: the same Train.teacher_cache.",
            prefix,
            f"views {dict(before)}" if before else "no views",
            f"views {now}" if now else "no views",
        )
