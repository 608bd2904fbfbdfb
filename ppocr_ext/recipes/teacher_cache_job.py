"""Build a teacher cache in several processes, of which this one is the first; each writes shards of its own.

A shard that is whole is kept: another call continues where the last one stopped.
"""

from __future__ import annotations

import logging
import multiprocessing
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from ppocr_ext.config import Config
from ppocr_ext.data.sample_views import CACHE_FACTS
from ppocr_ext.errors import DataError, PPOCRExtError, ProcessError
from ppocr_ext.io.atomic import check_writable, remove_temporary_files
from ppocr_ext.messages import LOG
from ppocr_ext.recipes.cache_builder import BuildPlan, CacheBuilder, CacheOptions, Shard
from ppocr_ext.run.batch_loader import leave_signals_to_the_run
from ppocr_ext.run.logs import set_up_console


def build_cache(config: Config, builder: CacheBuilder, options: CacheOptions) -> None:
    """Build what is missing in the folder of ``options``, with a progress bar.

    Raises:
        ProcessError: a process has ended without an error of its own; it has printed why.
        DataError: the folder cannot be written, or its disk has too little space.
        PPOCRExtError: what a process has raised.
    """
    folder = options.folder
    check_writable(folder / CACHE_FACTS)
    remove_temporary_files(folder)
    samples, free = builder.estimate()[0], shutil.disk_usage(folder).free
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
    spawn = multiprocessing.get_context("spawn")  # a forked process could not use Paddle's threads
    pending, count = builder.pending, min(options.processes, len(builder.pending))
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
        for worker in workers:
            worker.start()
        builder.build(progress.share(pending, 0), follow)
        while any(worker.is_alive() for worker in workers):
            time.sleep(0.2)
            follow(0)
        follow(0)
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.terminate()
                worker.join()


class _Progress(NamedTuple):
    """What the processes tell each other.

    Attributes:
        samples: that are computed.
        begun: shards that a process has.
        errors: that end the build.
    """

    samples: Any
    begun: Any
    errors: Any

    def add(self, samples: int) -> None:
        """Count samples."""
        with self.samples.get_lock():
            self.samples.value += samples

    def share(self, pending: Sequence[Shard], part: int) -> Iterator[Shard]:
        """Yield the shard ``part``, then those that no process has begun: a process that starts later gets fewer."""
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
    """Build shards in a process of its own; it ends with its parent."""
    leave_signals_to_the_run(part)
    set_up_console(to_stderr=True)
    LOG.setLevel(logging.WARNING)
    try:
        CacheBuilder(config, options, plan).build(progress.share(pending, part), progress.add)
    except PPOCRExtError as error:
        progress.errors.put(error)
