"""A fine-tuning step of a network of PP-OCR, with parallel branches and BatchNorms, and with `fused: true`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddle import nn

from benchmarks.fresh import in_fresh_process
from benchmarks.memory import peak_memory
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.conversion import ctc_alone
from ppocr_ext.config import load
from ppocr_ext.config.derive import with_class_counts
from ppocr_ext.inference.comparison import text_inputs
from ppocr_ext.io.resources import find_config
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.backbones.conv_parts import fuse_in_place
from ppocr_ext.run.context import tune_cpu

CLASSES = 6625
_LABEL = 7  # characters
_IMAGE = (3, 48, 192)


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time and bytes of each network, live and fused.

    Attributes:
        batch: images.
        rows: by network: for ``live`` and ``fused`` a mapping with ``seconds`` and ``peak``.
    """

    batch: int
    rows: dict[str, dict[str, dict[str, float]]]
    agrees: bool = True

    def to_markdown(self) -> str:
        """Return the table."""
        lines = [
            f"batch {self.batch}, 48x192, {CLASSES} classes, processor time of one thread\n",
            "| network | live, s | fused, s | faster by | live, GB | fused, GB |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for name, costs in self.rows.items():
            live, fused = costs["live"], costs["fused"]
            seconds = (
                f"{live['seconds']:.2f} | {fused['seconds']:.2f} | {live['seconds'] / fused['seconds']:.2f}"
            )
            lines.append(f"| {name} | {seconds} | {live['peak'] / 1e9:.2f} | {fused['peak'] / 1e9:.2f} |")
        return "\n".join(lines)


def measure_official(networks: Sequence[str], batch: int, rounds: int) -> Costs:
    """Measure each network in fresh processes, since a process keeps the memory of what it had before."""
    rows = {
        name: {
            "fused" if fused else "live": in_fresh_process(
                "benchmarks.official:take_steps",
                {"network": name, "fused": fused, "batch": batch, "rounds": rounds},
            )
            for fused in (False, True)
        }
        for name in networks
    }
    return Costs(batch, rows)


def take_steps(network: str, fused: bool, batch: int, rounds: int) -> dict[str, Any]:
    """Return the median seconds of a step on one batch, and the peak of the memory."""
    paddle.set_device("cpu")
    tune_cpu()
    paddle.seed(0)
    config = load([find_config(f"configs/pp-ocr/{network}.yml")])
    counted = with_class_counts(config, Charset(tuple(map(str, range(CLASSES - 1)))))
    model = build_model({**ctc_alone(counted.at("Architecture")), "fused": False})
    loss = build_loss({"name": "MultiLoss", "loss_config_list": [{"CTCLoss": {}}]})
    images = paddle.to_tensor(text_inputs((batch, *_IMAGE)))
    labels = paddle.to_tensor(np.random.default_rng(0).integers(1, CLASSES, (batch, _LABEL)))
    data = [images, labels, labels, paddle.full([batch], _LABEL, "int64"), paddle.ones([batch])]
    model.train()
    for norm in (each for each in model.sublayers() if isinstance(each, nn.BatchNorm2D)):
        norm._momentum = (
            0.0  # with the statistics of these images, numbers stay of the size that trained networks have
        )
    with paddle.no_grad():
        model(images, data=data[1:])
    if fused:
        model.eval()
        fuse_in_place(model)
        model.train()
    optimizer = paddle.optimizer.Adam(1e-4, parameters=model.parameters())
    seconds = []
    for _ in range(rounds + 1):
        began = time.process_time()
        loss(model(images, data=data[1:]), data)["loss"].backward()
        optimizer.step()
        optimizer.clear_grad()
        seconds.append(time.process_time() - began)
    return {"seconds": statistics.median(seconds[1:]), "peak": peak_memory()}
