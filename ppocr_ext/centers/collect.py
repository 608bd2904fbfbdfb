"""Run a recogniser over the samples of a split and add its features up by character."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import Tensor
from tqdm import tqdm

from ppocr_ext import __version__
from ppocr_ext.base.parts import DATASETS
from ppocr_ext.centers.accumulator import BLANK, CenterAccumulator, Frames, classes_of_frames
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.checkpoint.weights import state_digest
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import NETWORK
from ppocr_ext.data.batches import BatchLayout, images_of
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.loop.signals import deferred_signals
from ppocr_ext.messages import LOG
from ppocr_ext.modeling.features import FeatureTap, classifier_of, ctc_head_of
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.compiled_models import model_to_evaluate
from ppocr_ext.run.recogniser import single_recogniser
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team

_TRAIN_ONLY = ("ratio_list", "ds_width", "ext_op_transform_idx", "ext_data_num")


def config_of_model(config: Config, name: str | None, split: str) -> tuple[Config, str | None]:
    """Return a config of one recogniser and of the samples to run it on.

    Args:
        config: a training config of one model, or of a distillation.
        name: the sub-model; None: that of ``Metric.key``, or ``Student``.
        split: ``train``: the samples of ``Train`` with the transforms of ``Eval``; ``eval``: those of ``Eval``.

    Returns:
        The config, and the sub-model's name (None for a config of one model).

    Raises:
        ConfigError: there is no such sub-model, or no such section.
        WeightsError: the checkpoint cannot be read, or holds only other sub-models.
    """
    single, name = single_recogniser(config, name)
    # features are read from the network, without decoder and metric
    values: dict[str, Any] = {"Global.dry_step": False}
    if split == "train":
        values["Eval"] = _training_samples(config)
    return single.with_values(values), name


def _training_samples(config: Config) -> dict[str, Any]:
    for mode in ("Train", "Eval"):
        if config.at(mode, default=None) is None:
            raise ConfigError(
                f"The config has no section {mode}: samples of Train are read with the transforms of Eval.",
                code="missing_section",
            )
    section: dict[str, Any] = config.at("Eval").thaw()
    dataset = {k: v for k, v in config.at("Train.dataset").thaw().items() if k not in _TRAIN_ONLY}
    row = DATASETS.get(dataset["name"])
    dataset["name"] = row.of_one_size if row is not None and row.of_one_size else dataset["name"]
    dataset["transforms"] = section["dataset"].get("transforms")
    return {**section, "dataset": dataset}


def label_positions(config: Config) -> tuple[int, int]:
    """Return the positions of the CTC label and its length in a batch, by ``KeepKeys`` of ``Eval``.

    Raises:
        ConfigError: ``KeepKeys`` does not keep them.
    """
    layout = BatchLayout.of_transforms(config.at("Eval.dataset.transforms", default=()))
    if layout.label is not None and layout.length is not None:
        return layout.label, layout.length
    raise ConfigError(
        "Eval.dataset.transforms: KeepKeys must keep label_ctc (or label) and length.", code="labels_not_kept"
    )


_FEATURES = HeadRequest(frozenset({"ctc"}), as_dict=False, features=True)
_SAVE_EVERY = 30.0  # seconds between two saves of the sums


class _ShareOfBatches:
    """A batch sampler that yields every ``size``-th batch from ``rank`` on, after the first ``skip`` of them.

    It keeps no list of the batches: for many millions of samples that would be the largest thing in memory.
    """

    def __init__(
        self, sampler: Iterable[list[int]], limit: int | None, rank: int, size: int, skip: int
    ) -> None:
        self._sampler = sampler
        self._limit = limit
        self._first = rank + skip * size
        self._step = size
        self._count = sum(1 for _ in self)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(_limited(self._sampler, self._limit), self._first, None, self._step)

    def __len__(self) -> int:
        return self._count


def _limited(sampler: Iterable[list[int]], limit: int | None) -> Iterator[list[int]]:
    """Yield the batches of ``sampler`` until they have ``limit`` samples; None for all."""
    left = sys.maxsize if limit is None else limit
    for batch in sampler:
        if not left:
            return
        yield batch[:left]
        left -= min(left, len(batch))


@dataclass(frozen=True)
class CollectOptions:
    """How centers are collected; see ``ppocr-ext export-center --help``.

    Attributes:
        frames: which frames count.
        all_lines: with ``argmax``, samples read wrongly count too.
        limit: samples at most; None for all.
        partial: file of the sums so far; it stays until :func:`remove_partial`.
        resume: resume from that file.
    """

    frames: Frames = "argmax"
    all_lines: bool = False
    limit: int | None = None
    partial: Path | None = None
    resume: bool = False

    def partial_files(self) -> list[Path]:
        """Return the files of the sums of each process."""
        if self.partial is None:
            return []
        size = dist.get_world_size()
        ends = [""] if size == 1 else [f".{rank}" for rank in range(size)]
        return [self.partial.with_name(f"{self.partial.name}{end}") for end in ends]


def collect(run: Run, options: CollectOptions) -> CenterAccumulator:
    """Run once over the samples of ``run.eval_loader``; return the sums of all processes.

    Each process takes a share of the batches.

    Raises:
        DataError: a partial file belongs to another pass.
        ModelError: the model has no CTC head.
    """
    classifier = classifier_of(ctc_head_of(run.model))
    result = CenterAccumulator(run.charset.ctc_classes, int(classifier.weight.shape[0]))
    identity = _identity(run, options)
    files = options.partial_files()
    partial = files[dist.get_rank()] if files else None
    done = 0
    if options.resume and partial is not None:
        done = result.load(partial, identity) if partial.is_file() else 0
        LOG.info(
            "--resume: %s",
            f"after {done} batches of {partial}" if done else f"no {partial}, from the first sample",
        )
    _run_batches(run, options, result, partial, done, identity)
    if dist.get_world_size() > 1:
        _add_processes(result)
    return result


def remove_partial(options: CollectOptions) -> None:
    """Remove the partial files of all processes, after the result is written."""
    for path in options.partial_files():
        path.unlink(missing_ok=True)


def _run_batches(
    run: Run,
    options: CollectOptions,
    result: CenterAccumulator,
    partial: Path | None,
    done: int,
    identity: str,
) -> None:
    loader = run.eval_loader
    label, length = label_positions(run.config)
    rank = dist.get_rank()
    size = dist.get_world_size()
    loader.batch_sampler = _ShareOfBatches(loader.batch_sampler, options.limit, rank, size, done)
    saved = time.perf_counter()
    run.model.eval()
    bar = tqdm(
        loader, total=len(loader.batch_sampler), desc="centers", unit="batch", disable=None, leave=False
    )
    signals: list[int] = []  # handled after the batch is counted, or it would be added again
    with _reader(run, options) as read, paddle.no_grad(), deferred_signals(signals.append):
        for batch in bar:
            _add(result, *read(images_of(batch)), batch[label], batch[length], options)
            done += 1
            if partial is not None and (signals or time.perf_counter() - saved > _SAVE_EVERY):
                result.save(partial, done, identity)
                saved = time.perf_counter()
            if signals:
                break
    if signals:
        if partial is not None:
            LOG.info("saved the sums so far: %s", partial)
        signal.raise_signal(signals[0])


@contextmanager
def _reader(run: Run, options: CollectOptions) -> Iterator[Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """Yield what returns features [B, T, D] and logits [B, T, C] of images: compiled, or the network itself."""
    model = run.model
    count = len(run.eval_loader.dataset)
    count = min(count, options.limit or count)
    compiled = model_to_evaluate(run, model, count, _FEATURES)
    if isinstance(compiled, CompiledNetwork) and compiled.engine != NETWORK:

        def compute(images: Tensor) -> tuple[Tensor, Tensor]:
            output = compiled(images, None, _FEATURES)
            return output["head_out"] if isinstance(output, dict) else output

        yield compute
        return
    with FeatureTap(model) as tap:

        def read(images: Tensor) -> tuple[Tensor, Tensor]:
            model(images)
            return tap.features, tap.logits

        yield read


def _add(
    result: CenterAccumulator,
    features: Tensor,
    logits: Tensor,
    labels: Tensor,
    lengths: Tensor,
    options: CollectOptions,
) -> None:
    classes, correct = classes_of_frames(logits, labels, lengths, options.frames, options.all_lines)
    result.add(features.flatten(stop_axis=-2).astype("float32").numpy(), classes.reshape(-1))
    result.samples += len(correct)
    result.correct += int(correct.sum())


def _add_processes(result: CenterAccumulator) -> None:
    """Replace the sums by those of all processes."""

    def summed(values: np.ndarray) -> np.ndarray:
        tensor = paddle.to_tensor(values)
        dist.all_reduce(tensor)
        return np.asarray(tensor.numpy())

    team().barrier()  # a collective times out if another process takes much longer
    result.sums, result.squares, result.counts = map(summed, (result.sums, result.squares, result.counts))
    result.samples, result.correct = (int(n) for n in summed(np.array([result.samples, result.correct])))


def _identity(run: Run, options: CollectOptions) -> str:
    """Return a digest of all that the sums depend on: weights, dictionary, samples and choice of frames."""
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


def require_frames(result: CenterAccumulator, options: CollectOptions) -> None:
    """Refuse sums that have no frames but the blank's.

    Raises:
        DataError: no sample was read correctly, or none had frames.
    """
    if result.counts[1:].any():
        return
    cause = (
        "no label fits the model's frames. Fix: use wider images, which give more frames."
        if options.frames == "aligned"
        else f"the model reads {result.accuracy:.0%} of them correctly. Is this the trained checkpoint? Fix: "
        "`--frames aligned` takes the frames by the labels, also of samples read wrongly."
    )
    raise DataError(f"No character of {result.samples:,} samples has frames: {cause}", code="no_frames")


def table_of(result: CenterAccumulator, run: Run, meta: Mapping[str, Any]) -> CenterTable:
    """Return the centers, with what they were made of in ``meta``."""
    present = result.present
    charset = run.charset
    name = charset.name
    if charset.path is not None:
        name = name.replace(str(charset.path), charset.path.name)  # center files are passed on
    return CenterTable(
        class_ids=present.astype(np.int64),
        characters=tuple(charset.ctc_symbols[c] for c in present),
        centers=result.centers().astype(np.float32),
        counts=result.counts[present],
        variance=result.variance(),
        meta={
            "blank": BLANK,
            "charset": name,
            "charset_digest": charset.digest,
            "classes": charset.ctc_classes,
            "model_digest": state_digest(run.model),
            "lines": result.samples,
            "accuracy": result.accuracy,
            "versions": {"ppocr_ext": __version__, "paddle": paddle.__version__, "numpy": np.__version__},
            **meta,
        },
    )
