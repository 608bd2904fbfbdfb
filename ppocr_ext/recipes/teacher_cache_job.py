"""Build a teacher cache in several processes, each of which writes shards of its own.

A shard that is whole is kept: another call continues where the last one stopped.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import time
from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from ppocr_ext.config import Config
from ppocr_ext.data.preflight_report import PreflightReport
from ppocr_ext.data.sample_views import CACHE_FACTS
from ppocr_ext.errors import DataError, ProcessError
from ppocr_ext.io.atomic import check_writable, remove_temporary_files
from ppocr_ext.recipes.cache_builder import CacheBuilder, CacheOptions, Share
from ppocr_ext.run.batch_loader import leave_signals_to_the_run
from ppocr_ext.run.logs import set_up_console

_LOG = logging.getLogger("ppocr_ext")


def build_cache(config: Config, builder: CacheBuilder, options: CacheOptions) -> None:
    """Build what is missing in the folder of ``options``, with a progress bar.

    Raises:
        ProcessError: a process has failed; it has printed why.
        DataError: the folder cannot be written, or its disk has too little space.
    """
    folder, pending = options.folder, builder.pending
    check_writable(folder / CACHE_FACTS)
    remove_temporary_files(folder)
    needed, free = builder.missing_bytes(), shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"{folder}: the disk has too little space for the cache (found {free / 1e6:,.0f} MB, expected "
            f"{needed / 1e6:,.0f} MB). Fix: another --output, or fewer --views.",
            code="too_little_space",
        )
    builder.facts.write(folder)
    with tqdm(
        total=builder.estimate()[0], desc="teacher cache", unit="sample", disable=None, leave=False
    ) as bar:
        if options.processes == 1:
            builder.build(pending, bar.update)
        else:
            _build_together(config, options, builder, pending, bar)


def _build_together(
    config: Config, options: CacheOptions, builder: CacheBuilder, pending: Share, bar: Any
) -> None:
    spawn = multiprocessing.get_context("spawn")  # a forked process could not use Paddle's threads
    counter = spawn.Value("q", 0)
    given = config, options, builder.preflight, pending
    workers = [
        spawn.Process(target=_build_share, args=(*given, part, counter), daemon=True)
        for part in range(min(options.processes, len(pending)))
    ]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of them: one process on each core is faster than threads
    try:
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            time.sleep(0.2)
            bar.update(counter.value - bar.n)
            if any(worker.exitcode for worker in workers):
                break
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.terminate()
                worker.join()
    failed = [worker.exitcode for worker in workers if worker.exitcode]
    if failed:
        raise ProcessError(
            f"A process that builds the teacher cache ended with code {max(failed)}; what it printed says why. Whole "
            f"shards are kept. Fix: the same command with --processes 1 needs the least memory.",
            code="process_failed",
        )


def _build_share(
    config: Config,
    options: CacheOptions,
    preflight: Mapping[str, PreflightReport],
    pending: Share,
    part: int,
    counter: Any,
) -> None:
    """Build every n-th shard in a process of its own; it ends with its parent."""
    leave_signals_to_the_run(part)
    set_up_console(to_stderr=True)
    _LOG.setLevel(logging.WARNING)

    def count(samples: int) -> None:
        with counter.get_lock():
            counter.value += samples

    builder = CacheBuilder(config, options, preflight)
    builder.build(pending[part :: options.processes], count)
