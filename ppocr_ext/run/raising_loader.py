"""A loader that fails with the exception of its dataset, with and without worker processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from paddle.io import DataLoader
from paddle.io.dataloader.collate import default_collate_fn

from ppocr_ext.messages import WORKER_ENDED

_PATIENCE = 2.0  # seconds
# What the threads of loaders have raised. An evaluation reads while batches of the training are prefetched, so that
# each exception belongs to the thread of its own iterator.
_HEARD: WeakKeyDictionary[threading.Thread, BaseException] = WeakKeyDictionary()


class _Guard:
    """Keeps the exception of a function, and ends the epoch in its place."""

    def __init__(self) -> None:
        self.fault: Exception | None = None

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as fault:  # raised again where the batches are read
            self.fault = fault
            raise StopIteration from fault


class _GuardedDataset:
    def __init__(self, dataset: Any, guard: _Guard) -> None:
        self._dataset = dataset
        self._guard = guard

    def __getitem__(self, index: Any) -> Any:
        return self._guard.call(self._dataset.__getitem__, index)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class RaisingLoader(DataLoader):
    """Paddle's loader, of which an exception of the dataset reaches who reads the batches.

    Paddle reads in a thread. With ``num_workers: 0`` an exception ends the thread and the reader waits
    for ever; what it does understand is the end of the data. With worker processes the reader is told
    that a queue is closed, and the exception is printed by the thread.
    """

    @classmethod
    def of(cls, loader: Any) -> Any:
        """``loader`` as one of these, where it is Paddle's own; else as it is."""
        if type(loader) is DataLoader:
            loader.__class__ = cls
        return loader

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers:
            _hear_threads()
            return _from_workers(super().__iter__())
        own: Any = vars(self)
        guard, dataset, collate = _Guard(), own["dataset"], own["collate_fn"]
        self.dataset = _GuardedDataset(dataset, guard)
        self.collate_fn = partial(guard.call, collate or default_collate_fn)
        try:
            batches = super().__iter__()  # it takes dataset and collate_fn over now
        finally:
            self.dataset, self.collate_fn = dataset, collate
        return _until_fault(batches, guard)


def _from_workers(batches: Any) -> Iterator[Any]:
    """Batches of Paddle's iterator over worker processes; its thread's exception is raised here."""
    try:
        yield from batches
    except Exception as fault:
        if "Blocking queue is killed" not in str(fault):
            raise
        deadline = time.monotonic() + _PATIENCE  # the thread closes the queue before it raises
        while batches._thread not in _HEARD and time.monotonic() < deadline:
            time.sleep(0.01)
        raise _HEARD.pop(batches._thread, None) or RuntimeError(WORKER_ENDED) from fault


def _hear_threads() -> None:
    """Keep what a loader's thread raises, and let any other exception of a thread be printed."""
    before = threading.excepthook
    if getattr(before, "hears_loaders", False):
        return

    def heard(arguments: threading.ExceptHookArgs) -> None:
        said = str(arguments.exc_value)
        if arguments.thread and arguments.exc_value and said.startswith("DataLoader worker("):
            _HEARD[arguments.thread] = arguments.exc_value
        else:
            before(arguments)

    heard.hears_loaders = True  # type: ignore[attr-defined]
    threading.excepthook = heard


def _until_fault(batches: Iterator[Any], guard: _Guard) -> Iterator[Any]:
    yield from batches
    if guard.fault is not None:
        raise guard.fault
