"""The evaluation of a distillation, in a process of its own: all that ``eval`` does, once it is open."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.export_center_data import config_to_read
from ppocr_ext.host import open_host
from ppocr_ext.run.compiled_models import model_to_evaluate
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.run.run import Run


def measure(folder: str, rounds: int) -> dict[str, Any]:
    """Evaluate the student, by the config of its distillation.

    Args:
        folder: as :func:`benchmarks.export_center_data.prepare` leaves it.
        rounds: passes after one to warm up.

    Returns:
        ``images_per_second`` of each pass, and ``acc`` of the last.
    """
    quiet_host(open_host().logger)
    config = config_to_read(Path(folder)).with_values(
        {
            "Global.pretrained_model": None,
            "Architecture.Models.Student.pretrained": str(Path(folder, "student")),
        }
    )
    run = Run.build(config, "eval")
    samples, speeds, found = len(run.eval_loader.dataset), [], dict[str, float]()
    model = model_to_evaluate(run, samples)
    for _ in range(rounds + 1):
        began = time.perf_counter()
        found = run.host.evaluate(model, run.eval_loader, run.decoder, run.metric, "rec")
        speeds.append(samples / (time.perf_counter() - began))
    return {"images_per_second": speeds[1:], "acc": found["acc"]}
