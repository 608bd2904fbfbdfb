"""What it costs to compile a network again for new weights, and from how many images on an evaluation gains by it."""

from __future__ import annotations

import math
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import paddle

from benchmarks.memory import PeakGrowth
from benchmarks.sizes import SIZES, networks_of
from benchmarks.step import batch_of
from benchmarks.table import machine, markdown, megabytes, threads
from ppocr_ext.engine.graph_maker import open_graph
from ppocr_ext.engine.request_graph import GraphWriter
from ppocr_ext.engine.runners import GRAPH, WEIGHTS, open_predictor, run_predictor
from ppocr_ext.modeling import EVAL, build_model
from ppocr_ext.run.device import tune_cpu

PARTS = ("trace", "write", "open", "compare")


@dataclass
class NewWeightsCosts:
    """Seconds of each part of a graph, which is traced once, and of a batch.

    Attributes:
        setting: in words.
        seconds: of each of ``PARTS``; of a batch, by the ``network`` and ``compiled``. The medians count.
        batch: images.
        memory: bytes that the first batch adds to the process at most, by the ``network`` and ``compiled``.
    """

    setting: str
    seconds: Mapping[str, Sequence[float]]
    batch: int
    memory: Mapping[str, int]
    agrees = True  # else there are no figures

    def of_image(self, how: str) -> float:
        """Return the seconds of an image."""
        return statistics.median(self.seconds[how]) / self.batch

    def pays_from(self, parts: Sequence[str]) -> float:
        """Return the images of an evaluation that saves as much as these parts cost; infinite if it saves nothing."""
        saved = self.of_image("network") - self.of_image("compiled")
        cost = sum(statistics.median(self.seconds[part]) for part in parts)
        return math.ceil(cost / saved) if saved > 0 else math.inf

    def to_markdown(self) -> str:
        """A table of one row."""
        head = [f"{part}, s" for part in PARTS]
        head += ["network, ms of an image", "compiled, ms", "first evaluation pays from", "others pay from"]
        head += ["memory added by the network, MB", "by the graph, MB"]
        row = [f"{statistics.median(self.seconds[part]):.2f}" for part in PARTS]
        row += [f"{1000 * self.of_image(how):.2f}" for how in ("network", "compiled")]
        for images in map(self.pays_from, (PARTS, PARTS[1:])):
            row.append(f"{images} images" if math.isfinite(images) else "never")
        row += [megabytes(self.memory[how]) for how in ("network", "compiled")]
        return f"{self.setting}\n\n{markdown(head, [row])}"


def measure_new_weights(size: str, batch: int, rounds: int) -> NewWeightsCosts:
    """Compile the student for an evaluation, change its weights and compile it again.

    Args:
        size: ``"tiny"`` (the quickstart's student) or ``"full"`` (RepSVTR).
        batch: images.
        rounds: how often the weights change; each time both compute a batch.

    Raises:
        ModelError: a graph does not equal its network.
    """
    tune_cpu()
    (height, width), (config, charset) = SIZES[size][1], networks_of(size)
    paddle.seed(0)
    network = build_model(config.at("Architecture").thaw()).models["Student"]
    network.eval()
    images = batch_of(config, charset, batch, height, width)[0]
    seconds: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, int] = {}

    def timed(part: str, call: Callable[..., Any], *inputs: Any) -> Any:
        began = time.perf_counter()
        result = call(*inputs)
        seconds[part].append(time.perf_counter() - began)
        return result

    with tempfile.TemporaryDirectory() as text, paddle.no_grad():
        count = int(os.environ.get("OMP_NUM_THREADS", "1"))
        folder, shapes = Path(text), [(1, 3, height, width)]
        files = (folder / GRAPH, folder / WEIGHTS)
        writer = GraphWriter(network, EVAL, None, (3, height, None))
        growth = PeakGrowth()
        network(images)  # warms up
        memory["network"], growth = growth.bytes, PeakGrowth()
        timed("trace", writer.write, folder)
        for _ in range(rounds):
            for parameter in network.parameters():
                parameter.set_value(parameter * 1.01)
            timed("write", writer.write, folder)
            predictor = timed("open", partial(open_predictor, threads=count), *files)
            runner = partial(run_predictor, predictor)
            graph = timed("compare", open_graph, runner, network, EVAL, None, shapes)
            timed("compiled", graph.run, images.numpy(), None)
            memory.setdefault("compiled", growth.bytes)
            timed("network", network, images)
    seconds["trace"] = [max(0.0, seconds["trace"][0] - min(seconds["write"]))]  # it was written too
    setting = f"{size}: student, batch {batch}, {height}x{width}, {threads()}, {machine()}, {rounds} rounds"
    return NewWeightsCosts(setting, seconds, batch, memory)
