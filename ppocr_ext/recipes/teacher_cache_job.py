"""Build a teacher cache in this process and others, each of which writes its own shards.

Complete shards are kept, so another call continues where the last one stopped.
"""

from __future__ import annotations

import hashlib
import logging
import math
import multiprocessing
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn
from tqdm import tqdm

from ppocr_ext.config import Config
from ppocr_ext.config.global_keys import FLOAT32
from ppocr_ext.data.batches import images_of, labels_of
from ppocr_ext.data.load_failures import sample_key
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_seeds import CACHE_FACTS, Batch, Views
from ppocr_ext.errors import ConfigError, DataError, PPOCRExtError, ProcessError
from ppocr_ext.io.atomic import check_writable, machine_digest, remove_temporary_files, scratch_folder
from ppocr_ext.losses.base_loss import PAD as BLANK
from ppocr_ext.messages import LOG
from ppocr_ext.modeling import TRAIN
from ppocr_ext.modeling.digests import code_digest, state_digest
from ppocr_ext.run.compiled_models import compile_frozen
from ppocr_ext.run.context import RunOptions, open_context
from ppocr_ext.run.freezing import frozen_models
from ppocr_ext.run.loader import Loader
from ppocr_ext.run.loader_setup import open_data
from ppocr_ext.run.logs import quiet_host, set_up_console
from ppocr_ext.run.model_setup import load_model_weights
from ppocr_ext.run.networks import build_network
from ppocr_ext.run.train_setup import loss_for
from ppocr_ext.run.workers import leave_signals_to_the_run
from ppocr_ext.teacher_cache.lookup import (
    LENGTH,
    branch_logits,
    branches_to_keep,
    input_keys,
    reasons_against,
)
from ppocr_ext.teacher_cache.store import (
    TABLE,
    BranchForm,
    CacheFacts,
    Entry,
    TopClasses,
    data_digest,
    open_shard,
    read_facts,
    require_same_cache,
    shard_file,
    teacher_digest,
    top_classes,
    write_shard,
)

_KEPT = 64  # classes of a row, if no loss needs all
_MOST_SHARDS = 500  # each shard is a memory map
_LEAST_BATCHES = 32  # smallest shard; it is small, since a killed process loses the shard that it writes
_MOST_CLASSES = 1 << 16  # ids are stored in 16 bits
Shard = tuple[int, int]  # its view and its number


@dataclass(frozen=True)
class CacheOptions:
    """The options of ``ppocr-ext cache-teacher``.

    Attributes:
        folder: the folder of the cache.
        model: the frozen sub-model; None for the only one.
        views: number of views of each sample.
        seed: the seed of the views; None for ``Global.seed``.
        top_k: number of classes in a row; None for as many as the losses need.
        processes: number of processes that share the work.
        host_path: a PaddleOCR checkout; None searches for a host.
    """

    folder: Path
    model: str | None = None
    views: int = 4
    seed: int | None = None
    top_k: int | None = None
    processes: int = 1
    host_path: str | None = None


@dataclass(frozen=True)
class BuildPlan:
    """The results of the first process that the other processes need.

    Attributes:
        preflight: the reports on the data.
        branches: the stored form of each branch.
        entry_bytes: bytes of an entry.
        seconds: estimated time for an entry.
        dtype: type in which the teacher computes.
    """

    preflight: Mapping[str, PreflightReport]
    branches: Mapping[str, BranchForm]
    entry_bytes: int
    seconds: float
    dtype: str


class CacheBuilder:
    """Compute the entries of a cache.

    Args:
        config: the config of the distillation, as loaded.
        options: the options of the cache.
        plan: the plan of the first process; None in the first process.

    Attributes:
        facts: content of ``cache.json``.
        loss: the loss of the config.
        plan: the plan that the other processes need.

    Raises:
        ConfigError: no sub-model is frozen, or several are and none is chosen.
        DataError: a loss needs outputs that a cache does not have, or the folder holds another cache.
        PPOCRExtError: something cannot be built.
    """

    def __init__(self, config: Config, options: CacheOptions, plan: BuildPlan | None = None) -> None:
        # A scratch folder, so that nothing is written into the run folder.
        values: dict[str, Any] = {"Global.save_model_dir": str(scratch_folder()), "Train.teacher_cache": None}
        if options.processes > 1:
            values["Train.loader.num_workers"] = 0
        context = open_context(
            config.with_values(values), RunOptions("train", options.host_path, evaluates=False)
        )
        quiet_host(context.host.logger)
        views = Views(context.seed if options.seed is None else options.seed, options.views)
        model = build_network(context.components, context.charset)
        name = _frozen_model(model, options.model)
        data = open_data(context, model, views, None if plan is None else plan.preflight)
        self._loader: Loader = data.train_loader
        load_model_weights(model, context, needed=(name,))
        self.loss = loss_for(model, context)
        _require_servable(self.loss, name)
        wanted = branches_to_keep(self.loss, name)
        self._request = replace(TRAIN, branches=frozenset(wanted))
        model = model.using(train={name: self._request})
        listed = self._loader.of_view(0)
        self._samples = sum(map(len, listed)) * views.count
        callers = compile_frozen(context, model, self._samples)
        self._call = callers.get(name, model.models[name])
        self._folder = options.folder
        self.plan = plan or self._plan(listed[:2], data.preflight, wanted, options.top_k)
        count = len(listed)
        batches = (
            read_facts(options.folder).batches  # computed from fewer samples if the data have grown
            if (options.folder / CACHE_FACTS).exists()
            else max(_LEAST_BATCHES, math.ceil(count * views.count / _MOST_SHARDS))
        )
        self.facts = CacheFacts(
            name,
            teacher_digest(context.config, name, state_digest(model.models[name])),
            context.charset.digest,
            data_digest(context.config),
            views,
            self.plan.branches,
            math.ceil(count / batches),
            batches,
            self.plan.dtype,
            code_digest(model.models[name]),
        )
        require_same_cache(options.folder, self.facts)

    def _plan(
        self,
        first: list[Batch],
        preflight: Mapping[str, PreflightReport],
        wanted: Mapping[str, bool],
        top_k: int | None,
    ) -> BuildPlan:
        """Compute the two first batches, and decide about the stored form."""
        began = time.perf_counter()
        for batch in self._loader.read_view(0, first):  # the first one is slower
            logits = self._logits(batch)
            now = time.perf_counter()
            seconds = now - began
            began = now
        forms = {}
        size = TABLE.itemsize
        for name, everything in wanted.items():
            rows, classes = logits[name].shape[1:]
            everything = everything or classes > _MOST_CLASSES
            kept = min(classes, (classes if everything else _KEPT) if top_k is None else top_k)
            if everything and kept < classes:
                raise DataError(
                    f"--top-k is {top_k}, but all {classes:,} classes of {name} are needed. Fix: leave it out, or use "
                    f"another loss (docs/distillation.md lists them).",
                    code="unserved_loss",
                )
            forms[name] = BranchForm(classes, kept)
            size += forms[name].row_bytes * rows
        return BuildPlan(preflight, forms, size, seconds / len(images_of(batch)), self._dtype)

    def _logits(self, batch: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return the logits of the branches, [B, N, C]; those of NRTR at all positions that a label may have."""
        data = list(labels_of(batch))
        if "gtc" in self._request.branches:
            data[LENGTH] = paddle.full_like(data[LENGTH], data[LENGTH - 1].shape[1] - 2)
        output = self._call(images_of(batch), data, self._request)
        return {name: each.numpy() for name, each in branch_logits(output, self._request.branches).items()}

    def _entries(self, batch: Sequence[Any], dropped: dict[str, tuple[float, int]]) -> dict[bytes, Entry]:
        """Return the entries of a batch by their keys; add the probability that they leave out to ``dropped``."""
        logits = self._logits(batch)
        entries: list[dict[str, TopClasses]] = [{} for _ in range(len(images_of(batch)))]
        for name, values in logits.items():
            form = self.facts.branches[name]
            mass, rows = dropped.get(name, (0.0, 0))
            for place, of_sample in enumerate(values):
                kept = top_classes(of_sample, form.kept, BLANK if name == "ctc" else None)
                # Outputs of NRTR after the end of a label are never used.
                counted = None if name == "ctc" else int(batch[1 + LENGTH][place]) + 1
                entries[place][name] = kept
                mass += float(kept.mass(form.classes)[:counted].sum())
                rows += len(kept.rest[:counted])
            dropped[name] = (mass, rows)
        keys = input_keys(images_of(batch), labels_of(batch), self.facts.branches)
        return dict(zip(keys, entries, strict=True))

    @property
    def _dtype(self) -> str:
        return getattr(self._call, "dtype", FLOAT32)

    @cached_property
    def pending(self) -> list[Shard]:
        """View and number of the missing and damaged shards; computed once.

        Each machine begins at a place of its own, so that several of them can fill a shared folder.
        """
        missing = [shard for shard in self._files if not self._is_there(shard)]
        begin = int(machine_digest(), 16) % max(1, len(missing))
        return missing[begin:] + missing[:begin]

    def _is_there(self, shard: Shard, level: int = logging.WARNING) -> bool:
        return open_shard(self._files[shard], self.facts, level) is not None

    @cached_property
    def _files(self) -> dict[Shard, Path]:
        """The file of each shard; its name depends on the samples."""
        return {
            (view, number): shard_file(self._folder, view, number, self._digest(batches))
            for view in range(self.facts.views.count)
            for number, batches in enumerate(self._shards_of(view))
        }

    def _shards_of(self, view: int) -> list[Sequence[Any]]:
        """Return the batches of each shard of a view."""
        listed = self._loader.of_view(view)
        size = self.facts.batches
        return [listed[first : first + size] for first in range(0, len(listed), size)]

    def _digest(self, batches: Iterable[Any]) -> str:
        """Return a digest of the samples of a shard and their sizes, with which a multi-scale index begins."""
        keys = [
            sample_key(self._loader.dataset, index)
            + repr(index[:2] if isinstance(index, tuple | list) else "").encode()
            for index in chain.from_iterable(batches)
        ]
        return hashlib.blake2b(b"\n".join(keys), digest_size=8).hexdigest()

    def estimate(self) -> tuple[int, int, float]:
        """Return estimates: entries to compute, bytes of the whole cache, seconds for these entries."""
        entries = round(self._samples * len(self.pending) / (self.facts.views.count * self.facts.shards))
        return entries, self._samples * self.plan.entry_bytes, entries * self.plan.seconds

    def build(self, shards: Iterable[Shard], on_samples: Callable[[int], Any]) -> None:
        """Write ``shards``; ``on_samples`` is called with the number of samples of each batch."""
        listed: dict[int, Any] = {}
        for view, number in shards:
            listed = listed if view in listed else {view: self._shards_of(view)}
            # True if another machine has written it meanwhile; `pending` has warned of damage.
            if self._is_there((view, number), logging.DEBUG):
                on_samples(sum(map(len, listed[view][number])))
                continue
            entries: dict[bytes, Entry] = {}
            dropped: dict[str, tuple[float, int]] = {}
            for batch in self._loader.read_view(view, listed[view][number]):
                entries |= self._entries(batch, dropped)
                on_samples(len(images_of(batch)))
            if self._dtype != self.facts.dtype:
                raise DataError(
                    f"Global.teacher_dtype: the teacher has changed its type, as the log says (found {self._dtype}, "
                    f"expected {self.facts.dtype} for {self._folder}). Whole shards are kept. Fix: the same command "
                    f"again; if it ends here again, Global.teacher_dtype: {self._dtype} and another --output.",
                    code="other_dtype",
                )
            file = self._files[view, number]
            write_shard(file, entries, dropped)
            for other in set(self._folder.glob(f"{file.name.rpartition('-')[0]}*")) - {file}:
                other.unlink(missing_ok=True)  # an older shard with fewer samples


def _frozen_model(model: nn.Layer, name: str | None) -> str:
    """Return the name of the sub-model whose outputs are stored.

    Raises:
        ConfigError: no sub-model is frozen, or several are and ``name`` is None.
    """
    frozen = sorted(frozen_models(model))
    chosen = [each for each in frozen if name in (None, each)]
    if len(chosen) == 1:
        return chosen[0]
    problem = "several sub-models are frozen" if chosen else f"no sub-model {name or 'of it'} is frozen"
    raise ConfigError(
        f"Architecture.Models: {problem} (frozen: {', '.join(frozen) or 'none'}). Fix: give a config of a distillation "
        f"with `freeze_params: true` for its teacher; with several, --model NAME.",
        code="no_frozen_model",
    )


def _require_servable(loss: nn.Layer, name: str) -> None:
    against = reasons_against(loss, name)
    if not against and branches_to_keep(loss, name):
        return
    lines = "\n".join(f"  {line}" for line in against or [f"no loss reads {name}"])
    raise DataError(
        f"Loss: a teacher cache cannot serve this config:\n{lines}\nFix: remove these losses, or train with the live "
        f"teacher.",
        code="unserved_loss",
    )


def build_cache(config: Config, builder: CacheBuilder, options: CacheOptions) -> None:
    """Build the missing shards in the folder of ``options``, with a progress bar.

    Raises:
        ProcessError: a process has ended without raising an error; its output says why.
        DataError: the folder cannot be written, or its disk has too little space.
        PPOCRExtError: raised in one of the processes.
    """
    folder = options.folder
    check_writable(folder / ".new")
    remove_temporary_files(folder, shared=True)
    samples = builder.estimate()[0]
    free = shutil.disk_usage(folder).free
    needed = samples * builder.plan.entry_bytes
    if needed > free:
        raise DataError(
            f"{folder}: the disk has too little space for the cache (found {free / 1e6:,.0f} MB, expected "
            f"{needed / 1e6:,.0f} MB). Fix: another --output, or fewer --views.",
            code="too_little_space",
        )
    builder.facts.write(folder)
    with tqdm(total=samples, desc="teacher cache", unit="sample", disable=None, leave=False) as bar:
        if options.processes == 1:
            builder.build(builder.pending, bar.update)
        else:
            _build_together(config, options, builder, bar)


def _build_together(config: Config, options: CacheOptions, builder: CacheBuilder, bar: Any) -> None:
    """Build in this process and in others."""
    spawn = multiprocessing.get_context("spawn")  # Paddle's threads do not survive a fork
    pending = builder.pending
    count = min(options.processes, len(pending))
    progress = _Progress(spawn.Value("q", 0), spawn.Value("q", count), spawn.SimpleQueue())
    workers = [
        spawn.Process(
            target=_work, args=(config, options, builder.plan, pending, part, progress), daemon=True
        )
        for part in range(1, count)
    ]

    def follow(samples: int) -> None:
        progress.add(samples)
        bar.update(progress.samples.value - bar.n)
        if not progress.errors.empty():
            raise progress.errors.get()
        if failed := [worker.exitcode for worker in workers if worker.exitcode]:
            raise ProcessError(
                f"A process that builds the teacher cache ended with code {failed[0]}; what it printed says why. Whole "
                f"shards are kept. Fix: the same command with --processes 1 needs the least memory.",
                code="process_failed",
            )

    try:
        # Without Ctrl-C from the start, since it would print a traceback while they import; this process ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        for worker in workers:
            worker.start()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        builder.build(progress.share(pending, 0), follow)
        while any(worker.is_alive() for worker in workers):
            time.sleep(0.2)
            follow(0)
        follow(0)
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.kill()  # after SIGTERM, Paddle would print a C++ traceback
                worker.join()


class _Progress(NamedTuple):
    """Values that the processes share.

    Attributes:
        samples: number of computed samples.
        begun: number of shards that a process has begun.
        errors: queue of errors, which end the build.
    """

    samples: Any
    begun: Any
    errors: Any

    def add(self, samples: int) -> None:
        """Count samples."""
        with self.samples.get_lock():
            self.samples.value += samples

    def share(self, pending: Sequence[Shard], part: int) -> Iterator[Shard]:
        """Yield the shard ``part``, then shards that no process has begun, so a slower process gets fewer."""
        while part < len(pending):
            yield pending[part]
            with self.begun.get_lock():
                part = self.begun.value
                self.begun.value += 1


def _work(
    config: Config,
    options: CacheOptions,
    plan: BuildPlan,
    pending: Sequence[Shard],
    part: int,
    progress: _Progress,
) -> None:
    """Build shards in another process, which ends with its parent."""
    leave_signals_to_the_run(part)
    set_up_console(to_stderr=True)
    LOG.setLevel(logging.WARNING)
    try:
        CacheBuilder(config, options, plan).build(progress.share(pending, part), progress.add)
    except PPOCRExtError as error:
        progress.errors.put(error)
