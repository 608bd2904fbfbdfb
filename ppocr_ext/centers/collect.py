"""Run a recogniser over the samples of a split, and add its features up by character.

Sums and counts add up, so those of several processes, or of two parts of the data, give the centers of all.
"""

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
from typing import Any, Literal

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import Tensor
from tqdm import tqdm

from ppocr_ext import __version__
from ppocr_ext.base.parts import DATASET_ROWS
from ppocr_ext.characters.center_table import CenterTable
from ppocr_ext.charset import Charset
from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import NETWORK
from ppocr_ext.data.batches import BatchLayout, images_of
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.inference.compiled import CompiledNetwork
from ppocr_ext.io.atomic import atomic_writer
from ppocr_ext.io.plain_pickle import load_arrays
from ppocr_ext.loop.signals import deferred_signals
from ppocr_ext.losses.center_loss import forced_alignment
from ppocr_ext.losses.functional import best_classes
from ppocr_ext.messages import LOG
from ppocr_ext.modeling.digests import state_digest
from ppocr_ext.modeling.features import FeatureTap, classifier_of, ctc_head_of
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.compiled_models import model_to_evaluate
from ppocr_ext.run.recogniser import single_recogniser
from ppocr_ext.run.run import Run
from ppocr_ext.run.team import team

Frames = Literal["argmax", "aligned"]
BLANK = 0
SKIPPED = -1


class CenterAccumulator:
    """Add features up by class, in float64; memory depends only on classes and features.

    Args:
        classes: C, CTC classes with the blank.
        feat_dim: D, features of a frame.

    Attributes:
        sums: float64 [C, D], sums of the features.
        counts: int64 [C], numbers of frames.
        squares: float64 [C], sums of the squared norms of the features.
        samples, correct: number of samples that were read, and that were read correctly.
    """

    def __init__(self, classes: int, feat_dim: int) -> None:
        self.sums = np.zeros((classes, feat_dim), np.float64)
        self.counts = np.zeros(classes, np.int64)
        self.squares = np.zeros(classes, np.float64)
        self.samples = 0
        self.correct = 0

    def add(self, features: np.ndarray, class_ids: np.ndarray) -> None:
        """Add N frames.

        Args:
            features: float [N, D].
            class_ids: int [N], class of each frame; frames with a negative one are skipped.
        """
        used = class_ids >= 0
        if not used.all():
            features, class_ids = features[used], class_ids[used]
        if not len(class_ids):
            return
        order = np.argsort(class_ids, kind="stable")
        ids, first = np.unique(class_ids[order], return_index=True)
        rows = features[order].astype(np.float64)
        self.sums[ids] += np.add.reduceat(rows, first, axis=0)
        self.squares[ids] += np.add.reduceat(np.einsum("nd,nd->n", rows, rows), first)
        self.counts[ids] += np.diff(np.append(first, len(rows)))

    @property
    def present(self) -> np.ndarray:
        """Return int64 [K]: classes that have frames."""
        return np.flatnonzero(self.counts)

    @property
    def accuracy(self) -> float:
        """Return the share of samples read correctly; 0 without samples."""
        return self.correct / self.samples if self.samples else 0.0

    def centers(self) -> np.ndarray:
        """Return float64 [K, D]: mean feature of each class of :attr:`present`."""
        return self.sums[self.present] / self.counts[self.present, None]

    def variance(self) -> np.ndarray:
        """Return float64 [K]: mean squared distance of each present class's frames to their center."""
        means = self.centers()
        squares = self.squares[self.present] / self.counts[self.present]
        return np.maximum(squares - np.einsum("kd,kd->k", means, means), 0.0)  # rounding, if all are equal

    def save(self, path: Path, done: int, identity: str) -> None:
        """Write the sums so far, atomically.

        Args:
            path: the file.
            done: batches that the sums contain.
            identity: digest of everything the sums depend on; only the same pass can be resumed.
        """
        with atomic_writer(path) as stream:
            np.savez(
                stream,
                sums=self.sums,
                counts=self.counts,
                squares=self.squares,
                done=np.array([done, self.samples, self.correct]),
                identity=np.array(identity),
            )

    def load(self, path: Path, identity: str) -> int:
        """Resume from a file of :meth:`save`; return how many batches it contains.

        Raises:
            DataError: it is damaged, or belongs to another pass.
        """
        expected = [self.sums, self.counts, self.squares, np.zeros(3, np.int64)]
        damaged = DataError(
            f"{path} cannot be resumed from: it is damaged. Fix: delete it and start again.",
            code="damaged_file",
        )
        try:
            arrays = load_arrays(path, ("sums", "counts", "squares", "done", "identity"))
        except (ValueError, KeyError) as error:
            raise damaged from error
        *sums, done = (arrays[name] for name in ("sums", "counts", "squares", "done"))
        if str(arrays["identity"]) != identity:
            raise DataError(
                f"{path} belongs to another model, dictionary, label file or choice of frames. Fix: delete it, or "
                f"leave out --resume, to start again.",
                code="other_pass",
            )
        fits = [(x.shape, x.dtype) for x in (*sums, done)] == [(x.shape, x.dtype) for x in expected]
        if not fits or min(sums[1].min(), done.min()) < 0:
            raise damaged
        self.sums, self.counts, self.squares = sums
        batches, self.samples, self.correct = done.tolist()
        return int(batches)


def read_correctly(best: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return whether the greedy CTC prediction of each sample equals its label.

    Args:
        best: int [B, T], the most probable class of each frame.
        labels: int [B, L], class ids, with any padding after ``lengths``.
        lengths: int [B].

    Returns:
        bool [B].
    """
    changed = np.ones(best.shape, bool)
    changed[:, 1:] = best[:, 1:] != best[:, :-1]
    read = changed & (best != BLANK)
    place = np.cumsum(read, axis=1) - 1  # position of each character in its prediction
    fits = read & (place < lengths[:, None])
    if not labels.shape[1]:
        return np.asarray(~read.any(axis=1))
    expected = np.take_along_axis(labels, place.clip(0, labels.shape[1] - 1), axis=1)
    wrong = read & (~fits | (best != expected))
    return np.asarray((read.sum(axis=1) == lengths) & ~wrong.any(axis=1))


def classes_of_frames(
    logits: paddle.Tensor,
    labels: paddle.Tensor,
    lengths: paddle.Tensor,
    frames: Frames = "argmax",
    all_lines: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each frame, and which samples are read correctly.

    Args:
        logits: [B, T, C] of the CTC head.
        labels: int [B, L], class ids, padded after ``lengths``.
        lengths: int [B].
        frames: ``argmax`` gives a frame its most probable class, in samples read correctly (PaddleOCR's definition).
            ``aligned`` gives it the class of CTC forced alignment of the label, in all samples that fit.
        all_lines: with ``argmax``, samples read wrongly count too.

    Returns:
        int64 [B, T], the classes, ``-1`` for a skipped frame; bool [B], whether each sample is read correctly.
    """
    best = best_classes(logits).numpy()
    correct = read_correctly(best, labels.numpy(), lengths.numpy().reshape(-1))
    if frames == "aligned":
        return forced_alignment(logits, labels, lengths).numpy(), correct
    if not all_lines:
        best = np.where(correct[:, None], best, SKIPPED)
    return best, correct


_TRAIN_ONLY = ("ratio_list", "ds_width", "ext_op_transform_idx", "ext_data_num")


def config_of_model(config: Config, name: str | None, split: str) -> tuple[Config, str | None]:
    """Return a config of one recogniser and of the samples to run it on.

    Args:
        config: a training config of one model, or of a distillation.
        name: the sub-model; None for that of ``Metric.key``, or ``Student``.
        split: ``train`` for the samples of ``Train`` with the transforms of ``Eval``, ``eval`` for those of ``Eval``.

    Returns:
        The config, and the sub-model's name (None for a config of one model).

    Raises:
        ConfigError: there is no such sub-model, or no such section.
        WeightsError: the checkpoint cannot be read, or holds only other sub-models.
    """
    single, name = single_recogniser(config, name)
    # Features are read from the network, without decoder and metric, so no dry step is needed.
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
    row = DATASET_ROWS.get(dataset["name"])
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


_REQUEST = HeadRequest(frozenset({"ctc"}), as_dict=False, features=True)
_SAVE_EVERY = 30.0  # seconds between two saves of the sums


class _ShareOfBatches:
    """A batch sampler that yields every ``size``-th batch from ``rank`` on, after the first ``skip`` of them.

    It keeps no list of the batches, which would need much memory for many millions of samples.
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
    """The options of ``ppocr-ext export-center``.

    Attributes:
        frames: which frames count.
        all_lines: with ``argmax``, samples read wrongly count too.
        limit: the largest number of samples; None for all.
        partial: file of the sums so far, until :func:`remove_partial` removes it.
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
    """Run once over the samples of ``run.data.eval_loader``, and return the sums of all processes.

    Each process takes a share of the batches.

    Raises:
        DataError: a partial file belongs to another pass.
        ModelError: the model has no CTC head.
    """
    classifier = classifier_of(ctc_head_of(run.model))
    result = CenterAccumulator(run.context.charset.ctc_classes, int(classifier.weight.shape[0]))
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
    loader = run.data.eval_loader
    label, length = label_positions(run.context.config)
    loader.batch_sampler = _ShareOfBatches(
        loader.batch_sampler, options.limit, dist.get_rank(), dist.get_world_size(), done
    )
    saved = time.perf_counter()
    run.model.eval()
    bar = tqdm(
        loader, total=len(loader.batch_sampler), desc="centers", unit="batch", disable=None, leave=False
    )
    signals: list[int] = []  # handled after the batch is counted, so that a resume does not add it again
    with _reader(run, options) as read, paddle.no_grad(), deferred_signals(signals.append):
        for batch in bar:
            features, logits = read(images_of(batch))
            classes, correct = classes_of_frames(
                logits, batch[label], batch[length], options.frames, options.all_lines
            )
            result.add(features.flatten(stop_axis=-2).astype("float32").numpy(), classes.reshape(-1))
            result.samples += len(correct)
            result.correct += int(correct.sum())
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
    """Yield a function that returns features [B, T, D] and logits [B, T, C] of images.

    The compiled network computes them, or the network itself if none is compiled.
    """
    count = len(run.data.eval_loader.dataset)
    compiled = model_to_evaluate(run.context, run.model, min(count, options.limit or count), _REQUEST)
    if isinstance(compiled, CompiledNetwork) and compiled.engine != NETWORK:

        def compute(images: Tensor) -> tuple[Tensor, Tensor]:
            output = compiled(images, None, _REQUEST)
            return output["head_out"] if isinstance(output, dict) else output

        yield compute
        return
    with FeatureTap(run.model) as tap:

        def read(images: Tensor) -> tuple[Tensor, Tensor]:
            run.model(images)
            return tap.features, tap.logits

        yield read


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
    """Return a digest of everything the sums depend on: weights, dictionary, samples, choice of frames."""
    files = [each for found in run.data.preflight.values() for each in found.files]
    parts = {
        "model": state_digest(run.model),
        "charset": run.context.charset.digest,
        "lines": [(str(each.path), each.digest) for each in files],
        "data": str(run.context.config.at("Eval.dataset.data_dir", default="")),
        "count": len(run.data.eval_loader.dataset),
        "batch": run.context.config.at("Eval.loader.batch_size_per_card"),
        "frames": options.frames,
        "all_lines": options.all_lines,
        "limit": options.limit,
        "processes": dist.get_world_size(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def require_frames(result: CenterAccumulator, options: CollectOptions) -> None:
    """Refuse sums in which only the blank has frames.

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


def table_of(result: CenterAccumulator, charset: Charset, meta: Mapping[str, Any]) -> CenterTable:
    """Return the centers; ``meta`` gets the dictionary and the samples that they were made of."""
    present = result.present
    name = charset.name
    if charset.path is not None:
        name = name.replace(str(charset.path), charset.path.name)  # others may get the file of centers
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
            "lines": result.samples,
            "accuracy": result.accuracy,
            "versions": {"ppocr_ext": __version__, "paddle": paddle.__version__, "numpy": np.__version__},
            **meta,
        },
    )
