"""PaddleOCR's own loop over centers, in a process of its own, changed as people change it by hand.

Its loader, networks, decoder and ``tools.program.get_center`` are a checkout's. Added is what its export lacks for
such a config: the class counts, features in evaluation (taken by a hook), of a distillation the student's own output,
and evaluation mode without gradients.
"""

from __future__ import annotations

import importlib
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from benchmarks.fresh import answer
from benchmarks.memory import peak_memory
from benchmarks.peer import peer_first, stand_in_for_unused
from ppocr_ext.centers.single_model import config_of_model
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.serialize import read_state
from ppocr_ext.config import Config, load, with_class_counts
from ppocr_ext.errors import HostError
from ppocr_ext.modeling.features import FeatureTap
from ppocr_ext.run.device import tune_cpu


def measure(folder: str, root: str, distillation: bool, rounds: int) -> dict[str, Any]:
    """Passes over the lines of ``folder``.

    Args:
        folder: as :func:`benchmarks.export_center_data.prepare` leaves it. The last pass writes
            ``peer.npz`` to it: class ids and centers.
        root: the checkout.
        distillation: the config as it is, whose teacher runs too; else its student alone.
        rounds: passes after one batch to warm up.

    Returns:
        ``images_per_second`` of each pass, and ``peak`` memory of the process in bytes.

    Raises:
        HostError: it is no checkout that can be imported, or its student has other parameters.
    """
    tune_cpu()
    place = Path(folder)
    single, whole = _configs(place)
    stand_in_for_unused()
    with peer_first(Path(root)):
        try:
            program, data, architectures, post = (
                importlib.import_module(name)
                for name in (
                    "tools.program",
                    "ppocr.data",
                    "ppocr.modeling.architectures",
                    "ppocr.postprocess",
                )
            )
        except ImportError as lacking:
            raise HostError(
                f"--peer {root} cannot be imported here: {lacking}.", code="missing_package"
            ) from lacking
        plain = single.thaw()
        loader = data.build_dataloader(plain, "Eval", paddle.get_device(), logging.getLogger("peer"))
        decoder = post.build_post_process(plain["PostProcess"], plain["Global"])
        model = architectures.build_model((whole if distillation else single).thaw()["Architecture"])
    student = model.Student if distillation else model
    _load(student, place / "student.pdparams")
    model.eval()
    speeds = []
    with FeatureTap(student) as tap, paddle.no_grad():

        def features_and_probabilities(images: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
            output = model(images)
            output = output["Student"] if distillation else output
            return tap.features, output["head_out"] if isinstance(output, dict) else output

        features_and_probabilities(next(iter(loader))[0])
        for _ in range(rounds):
            began = time.perf_counter()
            centers = program.get_center(features_and_probabilities, loader, decoder)
            speeds.append(len(loader.dataset) / (time.perf_counter() - began))
    ids = sorted(int(c) for c in centers)
    np.savez(place / "peer.npz", class_ids=np.array(ids), centers=np.stack([centers[c] for c in ids]))
    return {"images_per_second": speeds, "peak": peak_memory()}


def _configs(folder: Path) -> tuple[Config, Config]:
    """Of the student alone, with the lines to read, and of the distillation."""
    config = load([folder / "config.yml"])
    charset = Charset.from_file(folder / "dict.txt", bool(config.at("Global.use_space_char")))
    whole = with_class_counts(config, charset)
    single, _ = config_of_model(whole, "Student", "train")
    return single.with_values({"Global.distributed": False}), whole


def _load(student: Any, path: Path) -> None:
    state = read_state(path)
    expected = {name: tuple(value.shape) for name, value in student.state_dict().items()}
    other = {name for name in expected if name not in state or tuple(state[name].shape) != expected[name]}
    if other or set(state) != set(expected):
        named = sorted(other | (set(state) - set(expected)))
        raise HostError(
            f"The student of this checkout has other parameters ({', '.join(named[:3])}, …), so that its centers "
            f"cannot be compared. Fix: use a checkout of PaddleOCR 2.8 or later.",
            code="weights_mismatch",
        )
    student.set_state_dict({name: paddle.to_tensor(value) for name, value in state.items()})


if __name__ == "__main__":
    answer(measure)
