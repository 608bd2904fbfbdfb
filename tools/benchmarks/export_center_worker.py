"""The pass that makes centers, the engine's forward pass, and an evaluation, in a process of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks.export_center_data import config_to_read
from ppocr_ext.centers.collect import CenterAccumulator, CollectOptions, collect, config_of_model
from ppocr_ext.host import open_host
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.compiled_models import LEAST_SAMPLES, model_to_evaluate
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.run.run import Run

_FEATURES = HeadRequest(frozenset({"ctc"}), as_dict=False, features=True)  # what `export-center` asks for


def measure(folder: str, passes: list[str]) -> dict[str, Any]:
    """Passes over the lines of ``folder``, one after another.

    Args:
        folder: as :func:`benchmarks.export_center_data.prepare` leaves it. A pass of centers writes
            ``ours.npz`` to it: class ids, centers and counts.
        passes: ``"centers"``, or ``"engine"``: the compiled network's forward pass over the same loader. The network
            is opened in each pass, as for centers.

    Returns:
        ``images_per_second`` of each pass, the number of ``lines``, and how many of them were ``correct``.
    """
    quiet_host(open_host().logger)
    place = Path(folder)
    config, _ = config_of_model(config_to_read(place), None, "train")
    run = Run.build(config, "eval", weights_of="Student")
    options = CollectOptions(partial=place / "partial.npz")
    lines = len(run.eval_loader.dataset)
    speeds, made = [], None
    for name in passes:
        if name == "centers":
            began = time.perf_counter()
            made = collect(run, options)
            seconds = time.perf_counter() - began
        else:
            seconds = _forward(run)
        speeds.append(lines / seconds)
    if made is not None:
        _save(made, place / "ours.npz")
    return {"images_per_second": speeds, "lines": lines, "correct": None if made is None else made.correct}


def _forward(run: Run) -> float:
    began = time.perf_counter()
    run.model.eval()
    network = model_to_evaluate(run, run.model, LEAST_SAMPLES, _FEATURES)
    with paddle.no_grad():
        for batch in run.eval_loader:
            network(batch[0], None, _FEATURES)
    if paddle.is_compiled_with_cuda():
        paddle.device.synchronize()
    return time.perf_counter() - began


def _save(sums: CenterAccumulator, path: Path) -> None:
    np.savez(path, class_ids=sums.present, centers=sums.centers(), counts=sums.counts[sums.present])


def evaluate(folder: str, rounds: int) -> dict[str, Any]:
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
    model = model_to_evaluate(run, run.model, samples)
    for _ in range(rounds + 1):
        began = time.perf_counter()
        found = run.host.evaluate(model, run.eval_loader, run.decoder, run.metric, "rec")
        speeds.append(samples / (time.perf_counter() - began))
    return {"images_per_second": speeds[1:], "acc": found["acc"]}
