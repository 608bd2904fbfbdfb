"""PaddleOCR's own loops over centers and an evaluation, in a process of their own.

That over centers is changed as people change it by hand.
Its loader, networks, decoder and ``tools.program.get_center`` are a checkout's. Added is what its export lacks for
such a config: the class counts, features in evaluation (taken by a hook), of a distillation the student's own output,
and evaluation mode without gradients.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks.memory import peak_memory
from benchmarks.peer import imported, take_weights
from ppocr_ext.centers.collect import config_of_model
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.run.device import tune_cpu


def measure(folder: str, root: str, rounds: int, what: str) -> dict[str, Any]:
    """Passes over the lines of ``folder``.

    Args:
        folder: as :func:`benchmarks.export_center_data.prepare` leaves it. The last pass over centers writes
            ``peer.npz`` to it: class ids and centers.
        root: the checkout.
        rounds: passes after one batch to warm up.
        what: ``"centers"`` or ``"evaluation"``; the teacher of the distillation runs too.

    Returns:
        ``images_per_second`` of each pass, ``peak`` memory of the process in bytes, and of an evaluation ``acc``.

    Raises:
        HostError: it is no checkout that can be imported, or its student has other parameters.
    """
    tune_cpu()
    place = Path(folder)
    single, whole = _configs(place)
    names = ("tools.program", "data", "modeling.architectures", "postprocess", "metrics")
    program, data, architectures, post, metrics = imported(Path(root), *names)
    plain = (whole if what == "evaluation" else single).thaw()
    loader = data.build_dataloader(plain, "Eval", paddle.get_device(), logging.getLogger("peer"))
    decoder = post.build_post_process(plain["PostProcess"], plain["Global"])
    model = architectures.build_model(whole.thaw()["Architecture"])
    state = read_state(place / "student.pdparams")
    take_weights(model.Student, {name: paddle.to_tensor(value) for name, value in state.items()})
    model.eval()
    with FeatureTap(model.Student) as tap, paddle.no_grad():

        def features_and_probabilities(images: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
            output = model(images)["Student"]
            return tap.features, output["head_out"] if isinstance(output, dict) else output

        def evaluate() -> dict[str, float]:
            metric = metrics.build_metric(dict(plain["Metric"]))
            found: dict[str, float] = program.eval(model, loader, decoder, metric, "rec")
            return found

        def centers() -> Any:
            return program.get_center(features_and_probabilities, loader, decoder)

        features_and_probabilities(next(iter(loader))[0])
        speeds, found = [], dict[Any, Any]()
        for _ in range(rounds):
            began = time.perf_counter()
            found = evaluate() if what == "evaluation" else centers()
            speeds.append(len(loader.dataset) / (time.perf_counter() - began))
    if what == "centers":
        ids = sorted(int(c) for c in found)
        np.savez(place / "peer.npz", class_ids=np.array(ids), centers=np.stack([found[c] for c in ids]))
    return {"images_per_second": speeds, "peak": peak_memory(), "acc": found.get("acc")}


def _configs(folder: Path) -> tuple[Config, Config]:
    """Of the student alone, with the lines to read, and of the distillation."""
    config = load([folder / "config.yml"])
    charset = Charset.from_file(folder / "dict.txt", bool(config.at("Global.use_space_char")))
    whole = with_class_counts(config, charset)
    single, _ = config_of_model(whole, "Student", "train")
    return single.with_values({"Global.distributed": False}), whole
