"""Run a recogniser over a list of lines and add its features up by character."""

from __future__ import annotations

import hashlib
import json
import logging
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from tqdm import tqdm

from ppocr_ext import __version__
from ppocr_ext.centers.accumulator import CenterAccumulator
from ppocr_ext.centers.frames import BLANK, Frames, classes_of_frames
from ppocr_ext.centers.single_model import label_places
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.model_state import state_digest
from ppocr_ext.errors import DataError
from ppocr_ext.loop.proxies import leave_signals_to_the_run
from ppocr_ext.loop.signals import DeferredSignals
from ppocr_ext.modeling.features import FeatureTap, classifier_of, ctc_head_of
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team

_LOG = logging.getLogger("ppocr_ext")
_SAVE_EVERY = 30.0  # seconds between two copies of what was added up so far


@dataclass
class Collected:
    """What a pass over the lines came to, over all processes.

    Attributes:
        sums: features by class.
        lines: lines that were read; ``correct``: of them read correctly.
        seconds: of this process, with what it had to wait for data.
    """

    sums: CenterAccumulator
    lines: int = 0
    correct: int = 0
    seconds: float = 0.0

    @property
    def accuracy(self) -> float:
        """Share of lines read correctly; 0 without lines."""
        return self.correct / self.lines if self.lines else 0.0


class _Share:
    """A batch sampler that gives every ``size``-th batch from ``rank`` on, after the first ``skip`` of them.

    No list of the batches is kept: of many millions of lines it would be the largest thing in memory.
    """

    def __init__(self, sampler: Any, limit: int | None, rank: int, size: int, skip: int) -> None:
        self._sampler, self._limit = sampler, limit
        self._first, self._step = rank + skip * size, size
        self._count = sum(1 for _ in self)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(_limited(self._sampler, self._limit), self._first, None, self._step)

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True)
class CollectOptions:
    """How centers are collected; see ``ppocr-ext export-center --help``.

    Attributes:
        frames: which frames count.
        all_lines: with ``argmax``, lines read wrongly count too.
        limit: lines at most; None for all.
        partial: file of what was added up so far; it stays until :func:`remove_partial`.
        resume: go on from that file.
    """

    frames: Frames = "argmax"
    all_lines: bool = False
    limit: int | None = None
    partial: Path | None = None
    resume: bool = False

    def partial_files(self) -> tuple[Path, ...]:
        """Those of all processes."""
        ranks = range(dist.get_world_size())
        return () if self.partial is None else tuple(_of_rank(self.partial, rank) for rank in ranks)


def collect(run: Run, options: CollectOptions) -> Collected:
    """One pass over the lines of ``run.eval_loader``; each process takes a share of the batches.

    Raises:
        DataError: a partial file belongs to something else.
        ModelError: the model has no CTC head.
    """
    classifier = classifier_of(ctc_head_of(run.model))
    result = Collected(CenterAccumulator(run.charset.ctc_classes, int(classifier.weight.shape[0])))
    identity = _identity(run, options)
    partial = None if options.partial is None else _of_rank(options.partial, dist.get_rank())
    done = 0
    if options.resume and partial is not None:
        if partial.is_file():
            done = result.sums.load(partial, identity)
            result.lines, result.correct = result.sums.lines, result.sums.correct
        _LOG.info(
            "--resume: %s",
            f"after {done} batches of {partial}" if done else f"no {partial}, from the first line",
        )
    _pass(run, options, result, partial, done, identity)
    _add_processes(result)
    return result


def remove_partial(options: CollectOptions) -> None:
    """Remove what all processes added up, once the result is written."""
    for path in options.partial_files():
        path.unlink(missing_ok=True)


def _pass(
    run: Run, options: CollectOptions, result: Collected, partial: Path | None, done: int, identity: str
) -> None:
    loader, (label, length) = run.eval_loader, label_places(run.config)
    rank, size = dist.get_rank(), dist.get_world_size()
    loader.batch_sampler = _Share(loader.batch_sampler, options.limit, rank, size, done)
    loader.worker_init_fn = leave_signals_to_the_run
    began = saved = time.perf_counter()
    run.model.eval()
    bar = tqdm(
        loader, total=len(loader.batch_sampler), desc="centers", unit="batch", disable=None, leave=False
    )
    asked: list[int] = []  # signals: a batch that was added is counted, or it would be added again
    with FeatureTap(run.model) as tap, paddle.no_grad(), DeferredSignals(asked.append):
        for batch in bar:
            run.model(batch[0])
            _add(result, tap, batch[label], batch[length], options)
            done += 1
            if partial is not None and (asked or time.perf_counter() - saved > _SAVE_EVERY):
                _save(result, partial, done, identity)
                saved = time.perf_counter()
            if asked:
                break
    if asked:
        if partial is not None:
            _LOG.info("saved what was added up: %s", partial)
        signal.raise_signal(asked[0])
    result.seconds = time.perf_counter() - began


def _limited(sampler: Any, limit: int | None) -> Iterator[list[int]]:
    left = limit
    for batch in sampler:
        indices = list(batch) if left is None else list(batch)[:left]
        if indices:
            yield indices
        if left is not None:
            left -= len(indices)
            if left <= 0:
                return


def _add(result: Collected, tap: FeatureTap, labels: Any, lengths: Any, options: CollectOptions) -> None:
    classes, correct = classes_of_frames(tap.logits, labels, lengths, options.frames, options.all_lines)
    features = tap.features.astype("float32").numpy()
    result.sums.add(features.reshape([-1, features.shape[-1]]), classes.reshape(-1))
    result.lines += len(correct)
    result.correct += int(correct.sum())


def _save(result: Collected, partial: Path, done: int, identity: str) -> None:
    result.sums.lines, result.sums.correct = result.lines, result.correct
    result.sums.save(partial, done, identity)


def _of_rank(path: Path, rank: int) -> Path:
    return path if dist.get_world_size() == 1 else path.with_name(f"{path.name}.{rank}")


def _add_processes(result: Collected) -> None:
    if dist.get_world_size() == 1:
        return
    team().meet()  # a collective gives up on processes that take much longer
    sums = result.sums
    sums.sums = _summed(sums.sums)
    sums.squares = _summed(sums.squares)
    sums.counts = _summed(sums.counts)
    result.lines, result.correct = (int(n) for n in _summed(np.array([result.lines, result.correct])))


def _summed(values: np.ndarray) -> np.ndarray:
    tensor = paddle.to_tensor(values)
    dist.all_reduce(tensor)
    return np.asarray(tensor.numpy())


def _identity(run: Run, options: CollectOptions) -> str:
    """What a partial file belongs to: weights, dictionary, lines and the way of taking frames."""
    parts = {
        "model": state_digest(run.model),
        "charset": run.charset.digest,
        "lines": [str(path) for path in run.label_files],
        "data": str(run.config.at("Eval.dataset.data_dir", default="")),
        "count": len(run.eval_loader.dataset),
        "batch": run.config.at("Eval.loader.batch_size_per_card"),
        "frames": options.frames,
        "all_lines": options.all_lines,
        "limit": options.limit,
        "processes": dist.get_world_size(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def require_frames(result: Collected, options: CollectOptions) -> None:
    """Refuse a pass from which no center but the blank's comes.

    Raises:
        DataError: no line was read correctly, or none had frames.
    """
    if result.sums.counts[1:].any():
        return
    if options.frames == "argmax" and not options.all_lines and not result.correct:
        raise DataError(
            f"Not one of {result.lines:,} lines is read correctly (accuracy 0 %), so no character has frames. Is this "
            f"the trained checkpoint? `--frames aligned` takes the frames that the labels say, also of lines read "
            f"wrongly."
        )
    if options.frames == "aligned":
        raise DataError(
            f"Not one label of {result.lines:,} lines fits the frames that the model gives: it needs wider images."
        )
    raise DataError(
        f"No frame of {result.lines:,} lines is of a character: the model gives nothing but blanks. Is this the "
        f"trained checkpoint? `--frames aligned` takes the frames that the labels say."
    )


def _name_of(charset: Charset) -> str:
    """Of a dictionary, without the folder of its file: centers are passed on."""
    return (
        charset.name if charset.path is None else charset.name.replace(str(charset.path), charset.path.name)
    )


def table_of(result: Collected, run: Run, meta: Mapping[str, Any]) -> CenterTable:
    """The centers of a pass, with what they were made of in ``meta``."""
    present = result.sums.present
    symbols = run.charset.ctc_symbols
    return CenterTable(
        class_ids=present.astype(np.int64),
        characters=tuple(symbols[c] for c in present),
        centers=result.sums.centers().astype(np.float32),
        counts=result.sums.counts[present],
        spread=result.sums.spread(),
        meta={
            "blank": BLANK,
            "charset": _name_of(run.charset),
            "charset_digest": run.charset.digest,
            "classes": run.charset.ctc_classes,
            "model_digest": state_digest(run.model),
            "lines": result.lines,
            "accuracy": result.accuracy,
            "versions": {"ppocr_ext": __version__, "paddle": paddle.__version__, "numpy": np.__version__},
            **meta,
        },
    )
