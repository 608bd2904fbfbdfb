"""Passes over the lines of :func:`benchmarks.export_center_data.prepare`: ours, and those of a PaddleOCR checkout.

The checkout's loops, loader, networks and decoder are its own. Its loop over centers is changed as people change it by
hand for such a config: class counts, the features (taken by a hook), the student's output of a distillation, evaluation
mode, and no gradients.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks.export_center_data import config_to_read
from benchmarks.peer import imported, take_weights
from ppocr_ext.centers.collect import CollectOptions, collect, config_of_model
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.config import load, with_class_counts
from ppocr_ext.host import open_host
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.modeling.head_request import HeadRequest
from ppocr_ext.run.compiled_models import model_to_evaluate
from ppocr_ext.run.context import tune_cpu
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.run.run import Run

_FEATURES = HeadRequest(frozenset({"ctc"}), as_dict=False, features=True)  # as `export-center`


def make_centers(folder: str, passes: list[str]) -> dict[str, Any]:
    """Make passes: ``"centers"``, or ``"engine"``: only the forward pass of the compiled network over the same loader.

    Each pass opens the network. The last one of centers writes ``ours.npz``: class ids, centers and counts.

    Returns:
        ``images_per_second`` of each pass, the number of ``lines``, and how many of them were ``correct``.
    """
    quiet_host(open_host().logger)
    place = Path(folder)
    config, _ = config_of_model(config_to_read(place), None, "train")
    run = Run.build(config, "eval", weights_of="Student")
    lines, sums = len(run.data.eval_loader.dataset), []
    works: dict[str, Callable[[], object]] = {
        "centers": lambda: sums.append(collect(run, CollectOptions(partial=place / "partial.npz"))),
        "engine": lambda: _forward(run),
    }
    speeds = [_speed(lines, works[name]) for name in passes]
    if sums:
        last = sums[-1]
        counts = last.counts[last.present]
        np.savez(place / "ours.npz", class_ids=last.present, centers=last.centers(), counts=counts)
    return {"images_per_second": speeds, "lines": lines, "correct": sums[-1].correct if sums else None}


def _forward(run: Run) -> None:
    run.model.eval()
    network = model_to_evaluate(run.context, run.model, len(run.data.eval_loader.dataset), _FEATURES)
    with paddle.no_grad():
        for batch in run.data.eval_loader:
            network(batch[0], None, _FEATURES)
    if paddle.is_compiled_with_cuda():
        paddle.device.synchronize()


def _speed(images: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return images / (time.perf_counter() - began)


def evaluate(folder: str, rounds: int) -> dict[str, Any]:
    """Evaluate the student by the config of its distillation, ``rounds`` times after one pass to warm up.

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
    samples, results, host = len(run.data.eval_loader.dataset), [], run.context.host
    model = model_to_evaluate(run.context, run.model, samples)
    parts = (model, run.data.eval_loader, run.decoder, run.metric, "rec")
    speeds = [_speed(samples, lambda: results.append(host.evaluate(*parts))) for _ in range(rounds + 1)]
    return {"images_per_second": speeds[1:], "acc": results[-1]["acc"]}


def measure_peer(folder: str, root: str, rounds: int, what: str) -> dict[str, Any]:
    """Make passes of the checkout ``root``, after one batch to warm up; the teacher of the distillation runs too.

    ``what`` is ``"centers"`` or ``"evaluation"``. The last pass of centers writes ``peer.npz``: class ids and centers.

    Returns:
        ``images_per_second`` of each pass, and ``acc`` of an evaluation.
    """
    tune_cpu()
    place = Path(folder)
    config = load([place / "config.yml"])
    charset = Charset.from_file(place / "dict.txt", bool(config.at("Global.use_space_char")))
    whole = with_class_counts(config, charset)
    single, _ = config_of_model(whole, "Student", "train")
    plain = (whole if what == "evaluation" else single.with_values({"Global.distributed": False})).thaw()
    names = ("tools.program", "data", "modeling.architectures", "postprocess", "metrics")
    program, data, architectures, post, metrics = imported(Path(root), *names)
    loader = data.build_dataloader(plain, "Eval", paddle.get_device(), logging.getLogger("peer"))
    decoder = post.build_post_process(plain["PostProcess"], plain["Global"])
    model = architectures.build_model(whole.thaw()["Architecture"])
    state = read_state(place / "student.pdparams")
    take_weights(model.Student, {name: paddle.to_tensor(value) for name, value in state.items()})
    model.eval()
    results: list[dict[Any, Any]] = []
    with FeatureTap(model.Student) as tap, paddle.no_grad():

        def features_and_probabilities(images: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
            output = model(images)["Student"]
            return tap.features, output["head_out"] if isinstance(output, dict) else output

        def work() -> None:
            if what == "evaluation":
                metric = metrics.build_metric(dict(plain["Metric"]))
                results.append(program.eval(model, loader, decoder, metric, "rec"))
            else:
                results.append(program.get_center(features_and_probabilities, loader, decoder))

        features_and_probabilities(next(iter(loader))[0])
        speeds = [_speed(len(loader.dataset), work) for _ in range(rounds)]
    if what == "centers":
        centers = results[-1]
        ids = sorted(int(c) for c in centers)
        np.savez(place / "peer.npz", class_ids=np.array(ids), centers=np.stack([centers[c] for c in ids]))
    return {"images_per_second": speeds, "acc": results[-1].get("acc")}
