"""Mix other lists into the batches of ``Train``: ``Train.mix``; imports no Paddle.

After n samples of ``Train.dataset``, a process has read ``floor(r · n + rank / processes)`` samples of a list with the
ratio r. So each process differs from its due, r · n, by less than one sample, and all of them together do from theirs
(Hermite's identity). Which samples these are follows from the epoch and the place of the batch alone, so a resumed run
reads the same ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ppocr_ext.base import Proxy
from ppocr_ext.config import Config
from ppocr_ext.data.load_failures import position_of, sample_key, with_position

SECTION = "Train.mix"


class MixedList(NamedTuple):
    """A list of ``Train.mix``.

    Attributes:
        section: its config path.
        ratio: its samples for each sample of ``Train.dataset``.
        labelled: False if its labels teach nothing, and a teacher does.
    """

    section: str
    ratio: Fraction
    labelled: bool


def mixed_lists(config: Config) -> list[MixedList]:
    """Return the lists of ``Train.mix``, those without labels last; a ``share`` is that of all samples of a batch."""
    entries = config.at(SECTION, None) or ()
    shares = [Fraction(str(each["share"])) for each in entries]
    own = 1 - sum(shares)
    lists = [
        MixedList(f"{SECTION}.{number}", share / own, entry.get("labelled") is not False)
        for number, (entry, share) in enumerate(zip(entries, shares, strict=True))
    ]
    return sorted(lists, key=lambda each: not each.labelled)


class MixedSamples(Proxy):
    """The samples of ``Train.dataset``, then those of each list that is mixed in.

    Its length is that of ``Train.dataset``. With a list without labels, each sample has one more entry at its end: 1
    if its label teaches, else 0.

    Args:
        datasets: of the host; a place counts from the begin of the first one.
        lists: what the datasets after the first one are.

    Attributes:
        lists: the same.
        ends: the place after the last sample of each dataset.
    """

    def __init__(self, datasets: Sequence[Any], lists: Sequence[MixedList]) -> None:
        super().__init__(datasets[0])
        self._datasets = datasets
        self.lists = lists
        self.ends = [*accumulate(map(len, datasets))]
        self._flags = [True, *(each.labelled for each in lists)]

    def set_epoch(self, epoch: int) -> None:
        """Tell every dataset that draws its images the epoch."""
        for each in self._datasets:
            if hasattr(each, "set_epoch"):
                each.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.real)

    def __getitem__(self, index: Any) -> Any:
        number, own = self._dataset_of(position_of(index))
        sample = self._datasets[number][with_position(index, own)]
        return sample if all(self._flags) else [*sample, np.array(self._flags[number], np.int64)]

    def _dataset_of(self, place: int) -> tuple[int, int]:
        """Return the number of the dataset of a place, and the place in it."""
        number = bisect_right(self.ends, place)
        return number, place - (self.ends[number - 1] if number else 0)

    @staticmethod
    def _key(samples: MixedSamples, place: int) -> bytes:
        """Return what identifies a sample, as :func:`sample_key` asks for it."""
        number, own = samples._dataset_of(place)
        return sample_key(samples._datasets[number], own)


class MixedBatches:
    """The batches of an epoch of one process, and samples of the mixed lists behind those of ``Train.dataset``.

    Args:
        batches: those of ``Train.dataset``, each a list of indices: places, or (width, height, place, ratio).
        lists: what is mixed in.
        ends: as of :class:`MixedSamples`.
        done: samples of ``Train.dataset`` that this process has read in the epochs before.
        seed: of the order of the lists.
        rank, processes: of this process.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        lists: Sequence[MixedList],
        ends: Sequence[int],
        done: int,
        seed: int,
        rank: int,
        processes: int,
    ) -> None:
        self._batches = batches
        self._lists = lists
        self._ends = ends
        self._done = done
        self._seed = seed
        self._rank, self._processes = rank, processes
        self._orders: dict[int, tuple[int, np.ndarray]] = {}  # round and order of each list

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[list[Any]]:
        done = self._done
        share = Fraction(self._rank, self._processes)
        for batch in self._batches:
            mixed = list(batch)
            for number, each in enumerate(self._lists):
                # what this process has read of the list before this batch, and after it
                first, end = (int(each.ratio * count + share) for count in (done, done + len(batch)))
                mixed += [
                    _index_of_size(batch[0], self._place(number, position)) for position in range(first, end)
                ]
            done += len(batch)
            yield mixed

    def _place(self, number: int, position: int) -> int:
        """Return a sample of a list, by its position among those of this process."""
        begin, end = self._ends[number : number + 2]
        round_, position = divmod(position * self._processes + self._rank, end - begin)
        return begin + int(self._order(number, round_, end - begin)[position])

    def _order(self, number: int, round_: int, size: int) -> np.ndarray:
        """Return the order of a list in a round, uint32 [size]."""
        if self._orders.get(number, (None, None))[0] != round_:
            draw = np.random.default_rng([self._seed, number, round_])
            self._orders[number] = (round_, draw.permutation(np.arange(size, dtype=np.uint32)))
        return self._orders[number][1]


def _index_of_size(index: Any, place: int) -> Any:
    """Return the index of another sample for the batch of ``index``; those of one batch get one size."""
    if not isinstance(index, tuple):
        return place
    width, height, _, ratio = index
    return (width if ratio is None else height * max(1, round(ratio)), height, place, None)
