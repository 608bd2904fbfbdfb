"""Passes of the networks themselves and of what is compiled of them, in a process of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import paddle

from benchmarks.engine import ENGINES, NETWORK, STUDENT, TEACHER
from benchmarks.memory import peak_memory
from benchmarks.sizes import SIZES, networks_of
from benchmarks.step import batch_of
from ppocr_ext.inference.compiled import CompiledNetwork
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
        ``seconds`` of each pass, ``peak`` memory of the process in bytes, the largest ``difference`` of an output from
        the network's, as a share of the largest value (at least 1), and ``bfloat16_difference``: the largest root mean
        square of the differences in bfloat16, as a share of the output's.
    """
    tune_cpu()
    (height, width), (config, charset) = SIZES[size][1], networks_of(size)
    paddle.seed(0)
    models = build_model(config.at("Architecture").thaw()).models
    images, *labels = batch_of(config, charset, batch, height, width)
    calls: dict[tuple[str, str], Callable[[], Any]] = {}
    for what, network, request in ((TEACHER, models["Teacher"], TRAIN), (STUDENT, models["Student"], EVAL)):
        network.eval()
        calls[what, NETWORK] = partial(network, images, labels, request)
        for how, (engine, dtype) in ENGINES.items():
            if [what, how] in passes:
                compiled = CompiledNetwork(network, request, name=what, dtype=dtype, engine=engine)
                calls[what, how] = partial(compiled, images, labels, request)
    seconds, outputs = [], {}
    with paddle.no_grad():
        for what, how in passes:
            began = time.perf_counter()
            outputs[what, how] = calls[what, how]()
            seconds.append(time.perf_counter() - began)
    return {
        "seconds": seconds,
        "peak": peak_memory(),
        "difference": _difference(outputs, "float32", lambda values: float(np.abs(values).max()), 1.0),
        "bfloat16_difference": _difference(
            outputs, "bfloat16", lambda values: float((values**2).mean() ** 0.5)
        ),
    }


def _difference(
    outputs: dict[tuple[str, str], Any], dtype: str, size: Callable[[np.ndarray], float], least: float = 0.0
) -> float:
    """Return the largest size of a difference from a network's output, as a share of that output's size."""
    found = [0.0]
    for what, how in outputs:
        if how != NETWORK and ENGINES[how][1] == dtype and (what, NETWORK) in outputs:
            pair = (paddle.utils.flatten(outputs[what, each]) for each in (NETWORK, how))
            for left, right in zip(*pair, strict=True):
                found.append(size(left.numpy() - right.numpy()) / max(least, size(left.numpy())))
    return max(found)
