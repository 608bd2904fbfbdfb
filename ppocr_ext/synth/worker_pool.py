"""One piece of work done on many tasks, in this process or in several; no Paddle."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

import cv2

from ppocr_ext.errors import DataError

Task = TypeVar("Task")
Result = TypeVar("Result")

_worker: Callable[[Any], Any] | None = None  # in a process of the pool: what its tasks are done with


@contextmanager
def mapped(
    worker: Callable[[Task], Result], tasks: Sequence[Task], processes: int
) -> Iterator[Iterable[Result]]:
    """Results of ``worker`` for each of ``tasks``, in their order.

    Args:
        worker: sent to each process once, so it must be possible to pickle it.
        tasks: small; sent one by one.
        processes: no more are started than there are tasks.

    Raises:
        DataError: a process was killed.
    """
    if min(processes, len(tasks)) == 1:
        yield map(worker, tasks)
        return
    # spawned, not forked: the caller may have threads (Paddle, OpenCV), which a fork does not survive; and no
    # multiprocessing.Pool, which waits for ever for a process that was killed
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(tasks)), context, _start_worker, (worker,))
    try:
        yield pool.map(_do, tasks)
    except BrokenProcessPool as error:
        raise DataError(
            "A process that does a part of the work has ended: killed, perhaps for want of memory. Start again with "
            "fewer processes; what is done is kept."
        ) from error
    except BaseException:
        for process in tuple((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(worker: Callable[[Any], Any]) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends the pool
    cv2.setNumThreads(1)
    _worker = worker


def _do(task: Any) -> Any:
    if _worker is None:
        raise RuntimeError("the pool was started without _start_worker")
    return _worker(task)
