"""Proxies that the host's loop receives in place of our objects, so that its calls become events.

The host calls ``iter(loader)`` and ``log_writer.log_metrics``; these names are PaddleOCR's interface. Each proxy passes
the call on and reports it to :mod:`ppocr_ext.loop.adapter`. Those of a step are in
:mod:`ppocr_ext.loop.step_proxies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from ppocr_ext.data.sample_seeds import generators_seeded

_PRIME = 1_000_003  # keeps the seeds of two epochs apart


class Proxy:
    """Base of the proxies: it passes every attribute that a proxy does not define on to the real object."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class LoaderProxy:
    """The training loader as the host sees it.

    ``__len__`` is the full epoch. Each ``iter`` begins an epoch, whose order follows from the seed and its number,
    so that a resumed run sees the data that it would have seen. Each
    ``next`` is a step boundary: ``on_boundary`` may raise to stop the run.

    Args:
        loader: the real loader.
        seed: the run's seed.
        first_epoch: epoch (from 1) that the next ``iter`` begins.
        skip: batches of that epoch that were done before.
        rebuild: builds the loader of another epoch, for data that are drawn anew in each epoch.
        on_boundary: called before each batch.
        on_epoch: called after the last batch of an epoch.
    """

    def __init__(
        self,
        loader: Any,
        *,
        seed: int,
        first_epoch: int,
        skip: int,
        rebuild: Callable[[int], Any] | None,
        on_boundary: Callable[[], None],
        on_epoch: Callable[[], None],
    ) -> None:
        self._loader = loader
        self._seed = seed
        self._epoch = first_epoch
        self._skip = skip
        self._rebuild = rebuild
        self._on_boundary = on_boundary
        self._on_epoch = on_epoch
        self._length = len(loader)
        self.dataset = SimpleNamespace(need_reset=False)  # the host must not rebuild the loader

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        epoch, skip = self._epoch, self._skip
        self._epoch, self._skip = epoch + 1, 0
        if self._rebuild is not None and epoch > 1:
            with generators_seeded(self._seed, epoch):  # PaddleOCR's MultiScaleSampler draws when it is built
                self._loader = self._rebuild(epoch)
        _begin_epoch(self._loader, epoch, self._seed * _PRIME + epoch)
        for batch in self._loader.read(epoch, skip):
            # not after the last batch of an epoch: the host then saves the checkpoints of the epoch's end
            self._on_boundary()
            yield batch
        self._on_epoch()


def _begin_epoch(loader: Any, epoch: int, seed: int) -> None:
    """Prepare dataset and batch sampler of ``loader`` for ``epoch``."""
    sampler: Any = getattr(loader, "batch_sampler", None)
    for part in (sampler, loader.dataset):
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
    if hasattr(sampler, "batchs_in_one_epoch_id"):
        # PaddleOCR's MultiScaleSampler shuffles the order of the epoch before, which a resumed run does not have
        sampler.batchs_in_one_epoch_id = list(range(len(sampler.batchs_in_one_epoch_id)))
        sampler.seed = seed


class EvalLoader(Proxy):
    """The valid loader as the host sees it; ``on_start`` is called before an evaluation, ``on_batch`` in each step."""

    def __init__(self, loader: Any, on_start: Callable[[], None], on_batch: Callable[[], None]) -> None:
        super().__init__(loader)
        self._on_start, self._on_batch = on_start, on_batch

    def __len__(self) -> int:
        return len(self.real)

    def __iter__(self) -> Iterator[Any]:
        self._on_start()
        for batch in self.real:
            self._on_batch()
            yield batch


class EvalListener:
    """The host's log writer: it reports evaluations, and nothing else.

    The host gives its writer window medians of the training losses; hooks read the losses
    themselves instead.
    """

    def __init__(self, on_eval: Callable[[Mapping[str, float]], object]) -> None:
        self._on_eval = on_eval

    def log_metrics(self, metrics: Mapping[str, float], prefix: str | None = None, step: int = 0) -> None:
        """Report an evaluation."""
        if prefix == "EVAL" and not all(name.startswith("best_") for name in metrics):
            self._on_eval(metrics)

    def log_model(self, is_best: bool = False, prefix: str = "", metadata: Any = None) -> None:
        """Do nothing: checkpoints are reported where they are written."""

    def close(self) -> None:
        """Do nothing: hooks close what they opened."""
