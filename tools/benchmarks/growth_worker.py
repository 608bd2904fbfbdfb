"""A teacher cache, or centers, of a label file of any length: seconds and memory, in a process of its own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_memory
from benchmarks.step_data import training_config
from ppocr_ext.centers.collect import CollectOptions, collect, config_of_model
from ppocr_ext.config import load
from ppocr_ext.host import open_host
from ppocr_ext.recipes.teacher_cache_job import CacheBuilder, CacheOptions, build_cache
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.run.run import Run

BATCH = 32


def measure(what: str, folder: str, lines: str) -> dict[str, Any]:
    """Build all that the command builds, and read each line once.

    Args:
        what: ``"cache"`` (one view) or ``"centers"``.
        folder: as :func:`benchmarks.step_data.prepare` leaves it.
        lines: the label file.

    Returns:
        ``seconds``, and ``peak`` memory of the process in bytes.
    """
    quiet_host(open_host().logger)
    place, began = Path(folder), time.perf_counter()
    if what == "cache":
        config = training_config(place, BATCH).with_values({"Train.dataset.label_file_list": [lines]})
        options = CacheOptions(place / "cache_to_measure", views=1)
        shutil.rmtree(options.folder, ignore_errors=True)
        build_cache(config, CacheBuilder(config, options), options)
    else:
        config, _ = config_of_model(load([place / "config.yml"]), None, "train")
        config = config.with_values(
            {"Eval.dataset.label_file_list": [lines], "Eval.loader.batch_size_per_card": BATCH}
        )
        collect(Run.build(config, "eval", weights_of="Student"), CollectOptions())
    return {"seconds": time.perf_counter() - began, "peak": peak_memory()}
