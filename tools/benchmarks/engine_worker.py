"""Passes of the networks themselves and of what is compiled of them, in a process of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import paddle

from benchmarks.engine import COMPILED, NETWORK, STUDENT, TEACHER
from benchmarks.fresh import answer
from benchmarks.memory import peak_memory
from benchmarks.sizes import SIZES, charset_of
from benchmarks.step import batch_of
from ppocr_ext.config import load, with_class_counts
from ppocr_ext.engine.compiled import compile_network
from ppocr_ext.io.resources import config_path
from ppocr_ext.modeling import EVAL, TRAIN, build_model
from ppocr_ext.run.device import tune_cpu


def measure(size: str, batch: int, passes: list[list[str]]) -> dict[str, Any]:
    """Passes over one batch, one after another.

    Args:
        size: ``"tiny"`` or ``"full"``.
        batch: images.
        passes: what and how: the teacher with all that losses can read, or the student in evaluation; the network or
            what is compiled of it. The first pass of each kind compiles and warms up.

    Returns:
        ``seconds`` of each pass, ``peak`` memory of the process in bytes, and the largest ``difference`` between two
        outputs of the same network, as a share of the largest value (at least 1).
    """
    tune_cpu()
    name, (height, width) = SIZES[size]
    charset = charset_of(size)
    config = with_class_counts(load([config_path(name)]), charset)
    paddle.seed(0)
    models = build_model(config.at("Architecture").thaw()).models
    images, *labels = batch_of(config, charset, batch, height, width)
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for what, network, request in ((TEACHER, models["Teacher"], TRAIN), (STUDENT, models["Student"], EVAL)):
        network.eval()
        compiled = compile_network(network, request, name=what)
        calls[what, NETWORK] = partial(network, images, labels, request)
        calls[what, COMPILED] = partial(compiled, images, labels, request)
    seconds, outputs = [], {}
    with paddle.no_grad():
        for what, how in passes:
            began = time.perf_counter()
            outputs[what, how] = calls[what, how]()
            seconds.append(time.perf_counter() - began)
    pairs = [[outputs.get((what, how)) for how in (NETWORK, COMPILED)] for what in (TEACHER, STUDENT)]
    differences = [_difference(*pair) for pair in pairs if None not in pair]
    return {"seconds": seconds, "peak": peak_memory(), "difference": max(differences, default=0.0)}


def _difference(one: Any, other: Any) -> float:
    found = [0.0]
    for left, right in zip(paddle.utils.flatten(one), paddle.utils.flatten(other), strict=True):
        largest = max(1.0, float(np.abs(left.numpy()).max()))
        found.append(float(np.abs(left.numpy() - right.numpy()).max()) / largest)
    return max(found)


if __name__ == "__main__":
    answer(measure)
