"""The loader of a run, which reads the host's dataset and sampler through Paddle's ``DataLoader``.

A batch passes four objects on its way from a file to the loss: the host's dataset, which reports samples that fail
(``data/load_failures.py``); :class:`_Samples`; Paddle's ``DataLoader``; and :class:`Loader`.

Paddle reads the dataset in a thread. With ``num_workers: 0``, an exception ends this thread and the reader waits for
ever. With worker processes, the thread prints the exception and the reader gets another one. So here an exception is
passed through Paddle's loader as a value, like a batch, and raised where the batches are read.
"""

from __future__ import annotations

import logging
import pickle
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from paddle.io import BatchSampler, DataLoader, get_worker_info
from paddle.io.dataloader.collate import default_collate_fn

from ppocr_ext.data.batches import equal_runs
from ppocr_ext.data.load_failures import sample_key
from ppocr_ext.data.mixing import MixedBatches, MixedSamples
from ppocr_ext.data.sample_seeds import (
    Batch,
    ShareOfBatches,
    ViewBatches,
    Views,
    generators_kept,
    generators_seeded,
    generators_state,
    set_generators,
    view_batches,
)
from ppocr_ext.errors import ConfigError
from ppocr_ext.host import Host
from ppocr_ext.messages import WORKER_ENDED
from ppocr_ext.registry import DATASETS
from ppocr_ext.run.workers import ending_workers_without_memory, leave_signals_to_the_run

_REQUIRED = ("batch_size_per_card", "drop_last", "shuffle", "num_workers")
_PRIME = 1_000_003  # keeps the seeds of two epochs apart
# Paddle's iterators and their threads, which may still run up to 5 seconds after the last batch. A worker process that
# is forked in that time has the iterator but no thread; freeing the iterator there would wait for the thread for ever.
_STARTED: list[tuple[Any, Thread]] = []
_MOST_SECONDS = 5  # to wait for ending threads; the system may give the number of one to another thread


@dataclass(frozen=True)
class LoaderParts:
    """The parts of a loader.

    Attributes:
        dataset: a dataset of the host, a plugin or this package.
        batch_sampler: yields the batches of an epoch, each a list of indices.
        collate: makes a batch from samples.
        workers: number of processes that load samples. With 0, this process loads them.
        device: the device of the batches; None if Paddle decides.
        shared_memory: whether workers send batches through shared memory.
        splits: whether images may have other widths than their neighbours; then a batch is read in parts of equal ones.
    """

    dataset: Any
    batch_sampler: Any
    collate: Callable[[Any], Any] = default_collate_fn
    workers: int = 0
    device: Any = None
    shared_memory: bool = True
    splits: bool = False


def loader_parts(
    host: Host,
    config: Mapping[str, Any],
    mode: str,
    seed: int,
    *,
    device: Any = None,
    dataset_class: Callable[..., Any] | None = None,
    logger: logging.Logger | None = None,
) -> LoaderParts:
    """Build dataset and sampler of ``config[mode]``, with PaddleOCR's keys and defaults.

    Args:
        host: opened; it has the samplers and collate functions.
        config: plain, as ``host_config`` returns it; it may be changed.
        mode: ``"Train"`` (the processes share the batches) or ``"Eval"``.
        seed: the seed of the dataset.
        device: the device of the batches.
        dataset_class: used instead of the dataset of the config.
        logger: the logger of the dataset; None for the host's.

    Raises:
        UnknownComponentError: there is no such dataset.
        ConfigError: a key of the loader is missing or not valid.
    """
    section = config[mode]
    loader = section["loader"]
    missing = [key for key in _REQUIRED if key not in loader]
    if missing:
        raise ConfigError(f"{mode}.loader lacks {', '.join(missing)}.", code="missing_key")
    make = dataset_class or DATASETS.get(section["dataset"]["name"])
    try:
        dataset = make(config, mode, logger or host.logger, seed)
    except AssertionError as reason:  # PaddleOCR's datasets check values by `assert`
        raise ConfigError(f"{mode}: {reason}", code="bad_value") from reason
    collate = default_collate_fn
    if loader.get("collate_fn") is not None:
        collate = _of_host(host, "collate_fn", loader["collate_fn"], f"{mode}.loader.collate_fn")()
    return LoaderParts(
        dataset,
        _sampler(host, dataset, section, mode),
        collate,
        loader["num_workers"],
        device,
        loader.get("use_shared_memory", True),
    )


def _sampler(host: Host, dataset: Any, section: Mapping[str, Any], mode: str) -> Any:
    loader = section["loader"]
    if mode == "Train" and section.get("sampler"):
        options = dict(section["sampler"])
        name = options.pop("name")
        return _of_host(host, "sampler", name, f"{mode}.sampler.name")(dataset, **options)
    kind = ShareOfBatches if mode == "Train" else BatchSampler
    return kind(
        dataset=dataset,
        batch_size=loader["batch_size_per_card"],
        shuffle=loader["shuffle"],
        drop_last=loader["drop_last"],
    )


def _of_host(host: Host, kind: str, name: str, path: str) -> Callable[..., Any]:
    found = host.component(kind, name)
    if found is None:
        raise ConfigError(f"{path}: the host has no {kind} {name!r}.", code="unknown_component")
    return found


class Loader:
    """Read the batches of ``Train`` or ``Eval``.

    ``__len__`` is the length of a whole epoch. Each sample has its own random numbers, and with views these
    repeat (``data/sample_seeds.py``).

    Before :meth:`train` is called, each ``iter`` reads the same epoch, as an evaluation does. After it, each ``iter``
    reads the next epoch.

    Attributes:
        dataset: the dataset.
        batch_sampler: the sampler of a whole epoch.
        views: the batches of each view; None without views.

    Args:
        parts: dataset and sampler.
        check: called with the samples of each batch, in the process that collates them; it may raise.
        seed: the seed of the run.
        rank: number of this process; each process has other random numbers.
        processes: number of processes that share the views.
        views: the views of the samples; None if each epoch has other random numbers.
        rebuild: returns the parts for an epoch, for a dataset that draws its samples anew in each epoch.

    Raises:
        ConfigError: views are not possible with this dataset or sampler.
    """

    def __init__(
        self,
        parts: LoaderParts,
        check: Callable[[Any], None] | None = None,
        *,
        seed: int = 0,
        rank: int = 0,
        processes: int = 1,
        views: Views | None = None,
        rebuild: Callable[[int], LoaderParts] | None = None,
    ) -> None:
        self._check = check
        self._seed = seed
        self._rank = rank
        self._processes = processes
        self._rebuild = rebuild if getattr(parts.dataset, "need_reset", False) else None
        if views is not None and self._rebuild is not None:
            raise ConfigError(
                "Train.dataset.ratio_list draws other samples in each epoch, so they have no views. Fix: remove it, "
                "or Train.teacher_cache; write a label file of a share of the lines for a smaller cache.",
                code="conflicting_keys",
            )
        self._use(parts)
        self.views = None if views is None else view_batches(parts.dataset, parts.batch_sampler, views)
        self._counts: list[int] = []  # samples of this process in each epoch, from 1, with views
        self._length = len(self.batch_sampler) if self.views is None else len(self._of_epoch(self.views, 0))
        if parts.splits and self._length:
            self._length = len(self.dataset)
        # For the next `iter`: its epoch, the batches to skip, and what to call before a batch and after the epoch.
        self._training: tuple[int, int, Callable[[], None], Callable[[], None]] | None = None

    def _use(self, parts: LoaderParts) -> None:
        self._parts = parts
        self.dataset = parts.dataset
        self.batch_sampler = parts.batch_sampler
        self.dataset.need_reset = False  # with True, the host would build its own loader after each epoch

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch; at most so many if they are read in parts."""
        return self._length

    @property
    def views_drawn(self) -> dict[str, int] | None:
        """Return seed and number of the views, as a checkpoint stores them; None without views."""
        return None if self.views is None else asdict(self.views.views)

    def train(
        self, epoch: int, skip: int, on_boundary: Callable[[], None], on_epoch: Callable[[], None]
    ) -> None:
        """Begin a training. The order of an epoch depends on the seed and its number only, also after a resume.

        Args:
            epoch: the epoch that the next ``iter`` reads, from 1.
            skip: number of batches of that epoch that were done before.
            on_boundary: called before each batch; it may raise to stop the run.
            on_epoch: called after the last batch of an epoch.
        """
        self._training = (epoch, skip, on_boundary, on_epoch)

    def __iter__(self) -> Iterator[Any]:
        """Read one epoch."""
        if self._training is None:
            yield from self.read()
            return
        epoch, skip, on_boundary, on_epoch = self._training
        self._training = (epoch + 1, 0, on_boundary, on_epoch)
        if self._rebuild is not None and epoch > 1:
            # PaddleOCR's MultiScaleSampler draws random numbers in its constructor.
            with generators_seeded(self._seed, epoch):
                self._use(self._rebuild(epoch))
        for batch in self.read(epoch, skip):
            # Not after the last batch of an epoch, where the host saves the checkpoints of the epoch.
            on_boundary()
            yield batch
        on_epoch()

    def part(self, indices: Iterable[int]) -> Loader:
        """Return a loader of these samples of ``Eval`` alone, in the order of the data."""
        order = sorted(indices)
        size = self.batch_sampler.batch_size
        batches = [order[at : at + size] for at in range(0, len(order), size)]
        return Loader(replace(self._parts, batch_sampler=batches), seed=self._seed)

    def read(self, epoch: int = 0, skip: int = 0) -> Iterator[Any]:
        """Read the batches of one epoch.

        Args:
            epoch: its number; each epoch has other random numbers.
            skip: number of batches to leave out at the beginning.

        Raises (while it is read):
            Exception: raised by dataset, sampler, check or collate function.
            RuntimeError: a worker process has ended.
        """
        if epoch:
            self._begin_epoch(epoch)
        if self.views is not None:
            batches = self._mixed(self._of_epoch(self.views, epoch), epoch)
            return self.read_view(self.views.views.of_epoch(epoch), batches, skip)
        mixed = self._mixed(self.batch_sampler, epoch)
        return self._start(SeededBatches(mixed, (self._seed, epoch, self._rank), skip))

    def _mixed(self, batches: Any, epoch: int) -> Any:
        """Return the batches of an epoch, with samples of ``Train.mix`` if there are any."""
        samples = self.dataset
        if not isinstance(samples, MixedSamples):
            return batches
        done = self._samples_before(epoch)
        return MixedBatches(
            batches, samples.lists, samples.ends, done, self._seed, self._rank, self._processes
        )

    def _samples_before(self, epoch: int) -> int:
        """Return how many samples of ``Train.dataset`` this process reads before an epoch."""
        before = max(epoch, 1) - 1
        if self.views is None:
            return before * _samples_an_epoch(self.batch_sampler)
        for each in range(len(self._counts) + 1, before + 1):
            self._counts.append(sum(map(len, self._of_epoch(self.views, each))))
        return sum(self._counts[:before])

    def of_view(self, view: int) -> list[Batch]:
        """Return the batches of a view, with each sample once, those of ``Train.mix`` too, always in the same order."""
        assert self.views is not None
        return self.views.of_view(view)

    def read_view(self, view: int, batches: Any, skip: int = 0) -> Iterator[Any]:
        """Read ``batches`` of a view without the first ``skip``; raises what :meth:`read` raises."""
        assert self.views is not None
        seed_of = self.views.views.sample_seed
        dataset = self.dataset
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(view)  # a dataset that draws images draws others in each view
        return self._start(
            SeededBatches(batches, lambda index: seed_of(sample_key(dataset, index), view), skip)
        )

    def _begin_epoch(self, epoch: int) -> None:
        sampler = self.batch_sampler
        for part in (sampler, self.dataset):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)
        if hasattr(sampler, "batchs_in_one_epoch_id"):
            # PaddleOCR's MultiScaleSampler shuffles the order of the previous epoch, which a resumed run lacks.
            sampler.batchs_in_one_epoch_id = list(range(len(sampler.batchs_in_one_epoch_id)))
            sampler.seed = self._seed * _PRIME + epoch

    def _of_epoch(self, views: ViewBatches, epoch: int) -> list[Batch]:
        return views.of_epoch(epoch, self._seed, self._rank, self._processes)

    def _start(self, batches: SeededBatches) -> Iterator[Any]:
        parts = self._parts
        # A thread that ends holds a lock of Paddle for a moment. A worker that is forked then waits for it for ever.
        deadline = time.monotonic() + _MOST_SECONDS
        while any(_is_ending(thread) for _, thread in _STARTED) and time.monotonic() < deadline:
            time.sleep(0.001)
        _STARTED[:] = [each for each in _STARTED if each[1].is_alive()]
        collate = partial(_in_parts, parts.collate) if parts.splits else parts.collate
        samples = _Samples(parts.dataset, collate, self._check)
        reader = DataLoader(
            samples,
            batch_sampler=batches,
            collate_fn=samples.collated,
            places=parts.device,
            num_workers=parts.workers,
            use_shared_memory=parts.shared_memory,
            worker_init_fn=leave_signals_to_the_run,
        )
        # Paddle starts to read here, and draws a seed for its worker processes.
        with generators_kept(), ending_workers_without_memory(parts.workers):
            started = iter(reader)
        _STARTED.append((started, started._thread))
        batches_read = _raise_failures(started)
        return chain.from_iterable(batches_read) if parts.splits else batches_read


def _in_parts(collate: Callable[[Any], Any], samples: Any) -> list[Any]:
    return [collate(run) for run in equal_runs(samples)]


def _is_ending(thread: Thread) -> bool:
    """Return whether Linux still has a thread that Python counts as ended."""
    return not thread.is_alive() and Path(f"/proc/self/task/{thread.native_id}").exists()


def _samples_an_epoch(sampler: Any) -> int:
    """Return the samples of a process in an epoch."""
    if hasattr(sampler, "batchs_in_one_epoch"):  # PaddleOCR's MultiScaleSampler
        return sum(map(len, sampler.batchs_in_one_epoch))
    return len(sampler) * sampler.batch_size if sampler.drop_last else sampler.num_samples


def _raise_failures(batches: Any) -> Iterator[Any]:
    batch = None
    try:
        for batch in batches:
            if isinstance(batch, list) and batch and isinstance(batch[-1], _Failure):
                raise batch[-1].error from batch[-1].cause
            yield batch
    except Exception as error:
        if "Blocking queue is killed" in str(error):  # Paddle has no exception type for it
            raise RuntimeError(WORKER_ENDED) from error
        raise
    finally:
        batches._try_shutdown_all()
        del batches, batch  # the traceback of the exception would keep them in memory


@dataclass(frozen=True)
class _Failure:
    """An exception that passes through Paddle's loader; ``cause`` has the traceback of a worker process."""

    error: Exception
    cause: Exception | None = None

    def to_send(self) -> _Failure:
        """Return a failure that can be sent to another process."""
        trace = RuntimeError("".join(traceback.format_exception(self.error)))
        try:
            pickle.loads(pickle.dumps(self.error))
        except Exception:
            return _Failure(RuntimeError(f"{type(self.error).__name__}: {self.error}"), trace)
        return _Failure(self.error, trace)


class SeededIndex(NamedTuple):
    """An index of a batch sampler with the seed of its sample.

    Attributes:
        index: the index in the dataset; (width, height, number, ratio) of a multi-scale dataset.
        seed: (seed of the run, epoch, rank, position among this process's samples of the epoch); views have seeds of
            another length (``data/sample_seeds.py``).
    """

    index: Any
    seed: tuple[int, ...]


class SeededBatches:
    """The batches of one epoch, without those that a resumed run has done before.

    Paddle asks for them one by one while it loads samples. The random numbers of the sampler depend on the seed of the
    run and the epoch only, so they are the same in all processes.

    Args:
        sampler: yields the batches of the whole epoch, each a list of indices.
        seed: (seed of the run, epoch, rank), or a function that returns the seed of an index.
        skip: number of batches to leave out.
    """

    def __init__(
        self, sampler: Any, seed: tuple[int, int, int] | Callable[[Any], tuple[int, ...]], skip: int = 0
    ) -> None:
        self._sampler = sampler
        self._seed = seed
        self._skip = skip

    def __len__(self) -> int:
        return max(0, len(self._sampler) - self._skip)

    def __iter__(self) -> Iterator[list[Any]]:
        position = 0
        try:
            with generators_seeded(*(() if callable(self._seed) else self._seed[:2])):
                batches = enumerate(self._sampler)
                state = generators_state()
            while True:
                with generators_kept():  # Paddle's thread draws numbers too while it loads samples
                    set_generators(state)
                    number, batch = next(batches, (0, None))
                    state = generators_state()
                if batch is None:
                    return
                if number >= self._skip:
                    yield [
                        SeededIndex(
                            index, self._seed(index) if callable(self._seed) else (*self._seed, place)
                        )
                        for place, index in enumerate(batch, position)
                    ]
                position += len(batch)
        except Exception as error:  # an exception in Paddle's thread would be lost
            yield [_Failure(error).to_send()]


@dataclass(frozen=True)
class _Samples:
    """Load samples with their own random numbers, check and collate them; return exceptions as values."""

    dataset: Any
    collate: Callable[[Any], Any]
    check: Callable[[Any], None] | None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, item: SeededIndex | _Failure) -> Any:
        if isinstance(item, _Failure):  # an exception of the sampler
            return item
        try:
            with generators_seeded(*item.seed):
                return self.dataset[item.index]
        except Exception as error:
            return _Failure(error)

    def collated(self, samples: Any) -> Any:
        """Return the batch of ``samples``; after an exception, its last entry is a :class:`_Failure`."""
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
        return [np.zeros(1), failure]  # Paddle's queue needs an array
