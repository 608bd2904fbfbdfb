"""Read loaders whose dataset fails, in a process of its own: a fork beside threads may lock.

``python failing_loaders.py``: the outcome of each case as JSON, by the number of workers.
"""

import json
import threading
import time

import numpy as np
from paddle.io import BatchSampler, Dataset

from ppocr_ext.errors import DataError
from ppocr_ext.run.loader import Loader, LoaderParts


class Numbers(Dataset):
    """Gives 0 to 7."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.full(3, index, np.float32)


class Failing(Numbers):
    """Fails at the sample 5."""

    def __getitem__(self, index):
        if index == 5:
            raise DataError("Train: list.txt:6: broken", code="failed_sample")
        return super().__getitem__(index)


class UnsendableError(Exception):
    """An exception that cannot be pickled."""

    def __init__(self, one, two):
        super().__init__("of two parts")


class FailsUnsendably(Numbers):
    """Fails at once."""

    def __getitem__(self, index):
        raise UnsendableError(1, 2)


class Uneven(Numbers):
    """Gives samples that cannot be collated."""

    def __getitem__(self, index):
        return np.zeros(3 + index, np.float32)


class FailingSampler(BatchSampler):
    """Fails after its first batch."""

    def __iter__(self):
        yield [0, 1]
        raise UnsendableError(1, 2)


def outcome(batches):
    """Return how many batches were read, and the exception with its code and what its cause says."""
    read = 0
    try:
        for _ in batches:
            read += 1
    except Exception as error:
        return [read, type(error).__name__, str(error), getattr(error, "code", None), str(error.__cause__)]
    return [read]


def outcomes(workers):
    """Return the outcome of each case."""

    def loader(dataset):
        return Loader(LoaderParts(dataset, BatchSampler(dataset, batch_size=2), workers=workers))

    hook = threading.excepthook
    healthy, failing = loader(Numbers()), loader(Failing())
    numbers = [[int(x) for batch in healthy for x in batch[:, 0].numpy().tolist()] for _ in range(2)]
    found = {
        "numbers": numbers,
        "failing": [outcome(failing), outcome(failing)],
        "unsendable": outcome(loader(FailsUnsendably())),
        "uneven": outcome(loader(Uneven())),
        "sampler": outcome(Loader(LoaderParts(Numbers(), FailingSampler(Numbers()), workers=workers))),
    }
    train = iter(failing)
    next(train)
    time.sleep(0.5)  # the batch that fails is fetched while the other loader is read
    found["in turns"] = [outcome(loader(FailsUnsendably())), outcome(train)]
    return {**found, "hook is as before": threading.excepthook is hook}


print(json.dumps({workers: outcomes(workers) for workers in (1, 0)}))  # a fork beside threads may lock
