"""The loader of a run: it raises what a dataset raises, with and without worker processes.

Paddle reads the dataset in a thread. With ``num_workers: 0`` an exception ends that thread, and the reader waits for
ever; with worker processes the thread prints the exception and the reader gets another one. Here an exception becomes
a value that passes through Paddle's loader like a batch, and is raised where the batches are read.

Each sample has random numbers of its own (``data/sample_seeds.py``), with views the same ones again and again
(``data/sample_views.py``).
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from paddle.io import BatchSampler, get_worker_info
from paddle.io.dataloader.collate import default_collate_fn

from ppocr_ext.data.load_failures import sample_key
from ppocr_ext.data.sample_seeds import SeededBatches, SeededIndex, generators_kept, generators_seeded
from ppocr_ext.data.sample_views import BatchSize, ViewBatches, Views, groups_of_scales
from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import WORKER_ENDED

_PR_SET_PDEATHSIG = 1  # of Linux's prctl
# Paddle's iterators whose thread may live: it does for up to 5 seconds after the last batch. A worker process that is
# forked in that time has no such thread; freeing the iterator there would wait for the thread for ever.
_STARTED: list[Any] = []


class BatchLoader:
    """Read batches through a loader of Paddle's, which this object owns.

    Attributes:
        dataset: the dataset as it is without the loader.
        batch_sampler: the sampler of a whole epoch.
        views: the batches of each view, if there are views.

    Args:
        loader: a ``paddle.io.DataLoader``; its ``dataset`` and ``collate_fn`` are replaced.
        check: called with the samples of each batch, in the process that collates them; it may raise.
        seed: of the run.
        rank: number of this process; each has other random numbers.
        processes: that share the views.
        views: of the samples; None: each epoch has other random numbers.

    Raises:
        ConfigError: there are views, and the sampler is not one of those that are known here.
    """

    def __init__(
        self,
        loader: Any,
        check: Callable[[Any], None] | None = None,
        *,
        seed: int = 0,
        rank: int = 0,
        processes: int = 1,
        views: Views | None = None,
    ) -> None:
        self._loader, self._seed, self._rank, self._processes = loader, seed, rank, processes
        self.dataset = loader.dataset
        self.batch_sampler = loader.batch_sampler
        self.views: Any = None if views is None else view_batches(loader, views)
        self._length = 0 if self.views is None else len(self._of_epoch(0))
        loader.dataset = _SafeDataset(loader.dataset)
        loader.collate_fn = _SafeCollate(loader.collate_fn or default_collate_fn, check)
        loader.worker_init_fn = leave_signals_to_the_run

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self.batch_sampler) if self.views is None else self._length

    @property
    def views_drawn(self) -> dict[str, int] | None:
        """Return seed and number of the views, as a checkpoint stores them; None without views."""
        return None if self.views is None else asdict(self.views.views)

    def __iter__(self) -> Iterator[Any]:
        """Read one whole epoch, with the same random numbers each time."""
        return self.read()

    def read(self, epoch: int = 0, skip: int = 0) -> Iterator[Any]:
        """Read the batches of one epoch.

        Args:
            epoch: another one has other random numbers.
            skip: batches to leave out, which were read before.

        Raises (while it is read):
            Exception: what the dataset, the check or ``collate_fn`` raised.
            RuntimeError: a worker process has ended.
        """
        if self.views is not None:
            return self.read_view(self.views.views.of_epoch(epoch), self._of_epoch(epoch), skip)
        with generators_seeded(self._seed, epoch):  # a sampler may draw: the same in all processes
            listed = list(self.batch_sampler)
        return self._start(SeededBatches(listed, (self._seed, epoch, self._rank), skip))

    def read_view(self, view: int, batches: Sequence[Sequence[Any]], skip: int = 0) -> Iterator[Any]:
        """Read ``batches`` as a view shows them, without the first ``skip``; raises what :meth:`read` raises."""
        seed_of, dataset = self.views.views.sample_seed, self.dataset
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(view)  # of drawn images
        return self._start(
            SeededBatches(batches, lambda index: seed_of(sample_key(dataset, index), view), skip)
        )

    def _of_epoch(self, epoch: int) -> list[list[Any]]:
        return self.views.of_epoch(epoch, self._seed, self._rank, self._processes)

    def _start(self, batches_to_read: SeededBatches) -> Iterator[Any]:
        _STARTED[:] = [each for each in _STARTED if each._thread and each._thread.is_alive()]
        self._loader.batch_sampler = batches_to_read
        with generators_kept():  # Paddle draws a seed for its worker processes
            batches = iter(self._loader)  # Paddle starts to read here
        _STARTED.append(batches)
        return _raise_failures(batches)


def view_batches(loader: Any, views: Views) -> ViewBatches:
    """Return the batches of the views of a loader, of the sizes that its sampler gives.

    Raises:
        ConfigError: the sampler is of a kind that is not known here.
    """
    dataset, sampler = loader.dataset, loader.batch_sampler

    def key(place: int) -> bytes:
        return sample_key(dataset, place)

    scales = getattr(sampler, "img_batch_pairs", None)  # of PaddleOCR's MultiScaleSampler
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
        views, [([size], np.arange(len(dataset)))], key, shuffle=shuffle, drop_last=sampler.drop_last
    )


def _raise_failures(batches: Any) -> Iterator[Any]:
    batch = None
    try:
        for batch in batches:
            if isinstance(batch, list) and batch and isinstance(batch[-1], _Failure):
                raise batch[-1].error from batch[-1].cause
            yield batch
    except Exception as error:
        if "Blocking queue is killed" in str(error):  # Paddle has no type of its own for it
            raise RuntimeError(WORKER_ENDED) from error
        raise
    finally:
        batches._try_shutdown_all()
        del batches, batch  # or the traceback of the exception would keep them


@dataclass(frozen=True)
class _Failure:
    """An exception on its way through Paddle's loader; ``cause`` has the traceback of a worker process."""

    error: Exception
    cause: Exception | None = None

    def to_send(self) -> _Failure:
        """Return a failure that a worker process can send."""
        trace = RuntimeError("".join(traceback.format_exception(self.error)))
        try:
            pickle.loads(pickle.dumps(self.error))
        except Exception:
            return _Failure(RuntimeError(f"{type(self.error).__name__}: {self.error}"), trace)
        return _Failure(self.error, trace)


@dataclass(frozen=True)
class _SafeDataset:
    """Load each sample with its own random numbers; return an exception of the dataset as a value."""

    dataset: Any

    def __getitem__(self, item: SeededIndex) -> Any:
        try:
            with generators_seeded(*item.seed):
                return self.dataset[item.index]
        except Exception as error:
            return _Failure(error)

    def __len__(self) -> int:
        return len(self.dataset)


@dataclass(frozen=True)
class _SafeCollate:
    """Check and collate samples; return an exception as a batch whose last entry is a :class:`_Failure`."""

    collate: Callable[[Any], Any]
    check: Callable[[Any], None] | None

    def __call__(self, samples: Any) -> Any:
        failure = next((sample for sample in samples if isinstance(sample, _Failure)), None)
        if failure is None:
            try:
                if self.check is not None:
                    self.check(samples)
                return self.collate(samples)
            except Exception as error:
                failure = _Failure(error)
        if get_worker_info() is not None:
            failure = failure.to_send()
        return [np.zeros(1), failure]  # Paddle's queue wants an array


def leave_signals_to_the_run(worker: int) -> None:
    """Take a worker process out of the group of the run, which ends its workers itself.

    Otherwise Ctrl-C and a scheduler's SIGTERM would reach the workers too. A run that is killed outright cannot
    end them: on Linux the system does.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or a warning printed from the background would stop it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
