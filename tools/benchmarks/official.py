"""A fine-tuning step of a network of PP-OCR beside PaddleOCR's, and how fast the released model reads.

Steps on the same batch, taken in turns: with the heads of PaddleOCR's config (CTC and NRTR, the same parameters on both
sides) and with CTC alone; ours with parallel branches and BatchNorms (*live*) and with ``fused: true``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import paddle
import paddle.distributed as dist
from paddle import nn

from benchmarks import official_reading
from benchmarks.fresh import in_fresh_process
from benchmarks.memory import peak_memory
from benchmarks.peer import require_peer
from benchmarks.step import LENGTH, PEER, RECOMPUTED, Step, batch_of, peer_step, timed_turns
from benchmarks.stepping import APART, require_shares, stepping_processes
from benchmarks.table import circumstances, markdown, medians, ratios, report, threads
from ppocr_ext.charset import Charset
from ppocr_ext.checkpoint.conversion import ctc_alone
from ppocr_ext.config import Config, load
from ppocr_ext.config.derive import with_class_counts
from ppocr_ext.io.resources import find_config
from ppocr_ext.losses import build_loss
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.backbones.conv_parts import fuse_in_place
from ppocr_ext.modeling.recompute import recompute_blocks
from ppocr_ext.optim import build_optimizer
from ppocr_ext.recognition.images import list_images
from ppocr_ext.run.context import tune_cpu
from ppocr_ext.run.model_wrappers import data_parallel

CLASSES = 6625
PEER_CTC = f"{PEER}, CTC alone"
BOTH, LIVE = "ppocr_ext, CTC and NRTR", "ppocr_ext, CTC alone, live"
FUSED = "ppocr_ext, CTC alone, fused"  # as `init --base` writes it
_WITHOUT_PEER = (LIVE, FUSED)
_WITH_PEER = (PEER, BOTH, BOTH + RECOMPUTED, PEER_CTC, LIVE, LIVE + RECOMPUTED, FUSED, FUSED + RECOMPUTED)
_IN_PROCESSES = (BOTH + APART, FUSED + APART)
_CTC = {"name": "MultiLoss", "loss_config_list": [{"CTCLoss": {}}]}


@dataclass(frozen=True)
class Costs:
    """What was measured.

    Attributes:
        setting: in words.
        steps: by network and kind of step: ``times`` of the rounds, and ``peak`` bytes of a process.
        readings: by released model, as :func:`benchmarks.official_reading.measure` returns them.
    """

    setting: str
    steps: Mapping[str, Mapping[str, Mapping[str, Any]]]
    readings: Mapping[str, dict[str, Any]]
    agrees: bool = True

    def to_markdown(self) -> str:
        """Return a table for each network and each released model."""
        parts = [self.setting]
        for name, steps in self.steps.items():
            parts += [name, _table(steps)]
        for name, reading in self.readings.items():
            parts += [name, official_reading.table(reading)]
        return report(*parts)


def _table(steps: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for each kind of step, compared with the first one."""
    first = next(iter(steps))
    base = steps[first]
    head = ["step", "seconds (median)", "processor, s", f"faster than {first} by", "by processor time"]
    rows = []
    for kind, costs in steps.items():
        times, peak = costs["times"], costs.get("peak")
        wall, processor = medians(times)
        cells = [kind, f"{wall:.2f}", f"{processor:.2f}", f"{ratios(base['times'], times, 0)}"]
        cells += [f"{ratios(base['times'], times)}"]
        if peak is None:  # other processes compute
            cells = [*cells[:2], "", cells[3], "", "", ""]
        else:
            cells += [f"{peak / 1e9:.2f}", f"{peak / base['peak']:.2f}"]
        rows.append(cells)
    return markdown([*head, "peak, GB", f"of {first}"], rows)


def measure_official(
    networks: Sequence[str],
    batch: int,
    rounds: int,
    image: Sequence[int] = (48, 192),
    peer: str | None = None,
    lines: Sequence[str] = (),
    count: int = 96,
) -> Costs:
    """Measure steps of the networks, and reading if there are ``lines``.

    Args:
        networks: names of configs in ``pp-ocr/``.
        batch: images of a step, and of an engine that reads.
        rounds: measured ones.
        image: height and width in pixels, of a step.
        peer: a PaddleOCR checkout; networks that it does not have are measured without it.
        lines: images to read, as for ``ppocr-ext predict``.
        count: of these, spread evenly.
    """
    before, processes = os.getloadavg()[0], int(os.environ.get("OMP_NUM_THREADS", "1"))
    if peer is not None:
        require_peer(Path(peer))
        require_shares(batch, processes)
    steps = {}
    for name in networks:
        root = None if peer is None or not _has(Path(peer), name) else str(Path(peer).resolve())
        kinds = _WITHOUT_PEER if root is None else _WITH_PEER + _IN_PROCESSES * (processes > 1)
        work = {"network": name, "batch": batch, "image": image, "root": root, "processes": processes}
        times = _fresh_steps(work, kinds, rounds)["times"]
        steps[name] = {kind: {"times": times[kind]} for kind in kinds}
        for kind in (each for each in kinds if not each.endswith(APART)):
            # in processes of their own, since a process keeps the memory of what it had before
            steps[name][kind]["peak"] = _fresh_steps(work, [kind], 1)["peak"]
    images = [str(each.place) for each in list_images(lines).images] if lines else []
    images = images[:: max(1, len(images) // count)][:count]
    readings = {}
    for model in (_config(name).at("Global.pretrained_model") for name in networks if images):
        work = {"model": model, "images": images, "batch": batch, "rounds": rounds}
        readings[model] = in_fresh_process("benchmarks.official_reading:measure", work)
    setting = f"batch {batch}, steps of {'x'.join(map(str, image))} and {CLASSES} classes, {threads()}, "
    setting += f"{rounds} rounds, Paddle {paddle.__version__} on cpu, {circumstances(before)}"
    return Costs(setting, steps, readings)


def _config(network: str) -> Config:
    return load([find_config(f"configs/pp-ocr/{network}.yml")])


def _has(peer: Path, network: str) -> bool:
    """Return True if the checkout defines the backbone of the network."""
    name = _config(network).at("Architecture.Backbone.name")
    files = (peer / "ppocr" / "modeling" / "backbones").glob("*.py")
    return any(f"class {name}(" in file.read_text(encoding="utf-8") for file in files)


def _fresh_steps(work: Mapping[str, Any], kinds: Sequence[str], rounds: int) -> dict[str, Any]:
    return in_fresh_process("benchmarks.official:take_steps", {**work, "kinds": kinds, "rounds": rounds})


def take_steps(kinds: Sequence[str], rounds: int, processes: int, **work: Any) -> dict[str, Any]:
    """Take steps in turns.

    Args:
        kinds: names of this module.
        rounds: measured ones.
        processes: that share the batch in kinds with :data:`benchmarks.stepping.APART`.
        work: the other arguments of :func:`steps_of`.

    Returns:
        ``times`` by kind, as :func:`benchmarks.step.timed_turns` returns them, and ``peak`` memory of this process.
    """
    paddle.set_device("cpu")
    if any(not kind.startswith(PEER) for kind in kinds):
        tune_cpu()
    steps = steps_of([kind for kind in kinds if not kind.endswith(APART)], **work)
    apart = {kind: kind.removesuffix(APART) for kind in kinds if kind.endswith(APART)}
    with ExitStack() as stack:
        if apart:
            shared = partial(steps_of, list(apart.values()), **work)
            together = stack.enter_context(stepping_processes(processes, shared))
            steps |= {kind: partial(together, name) for kind, name in apart.items()}
        return {"times": timed_turns(steps, rounds), "peak": peak_memory()}


def steps_of(
    kinds: Sequence[str], network: str, batch: int, image: Sequence[int], root: str | None
) -> dict[str, Step]:
    """Return steps by kind; each has a model of its own, and this process's share of the batch.

    Args:
        kinds: names of this module, without those in processes.
        network: name of a config in ``pp-ocr/``.
        batch: images of all processes.
        image: height and width in pixels.
        root: the checkout for the kinds of PaddleOCR.
    """
    charset = Charset(tuple(map(str, range(CLASSES - 1))))
    both = with_class_counts(_config(network), charset)
    alone = both.with_values({"Architecture": ctc_alone(both.at("Architecture")), "Loss": _CTC})
    share = slice(dist.get_rank(), None, dist.get_world_size())
    data = [each[share] for each in batch_of(both, charset, batch, *image)]
    steps = {}
    for kind in kinds:
        config = both if kind in (PEER, BOTH, BOTH + RECOMPUTED) else alone
        if kind == PEER:
            state = build_model(config.at("Architecture").thaw()).state_dict()
            steps[kind] = peer_step(config, data, Path(root or ""), state)
        elif kind == PEER_CTC:
            steps[kind] = peer_step(_flat(config), [data[0], data[1], data[3]], Path(root or ""))
        else:
            steps[kind] = _our_step(config, data, kind)
    return steps


def _flat(config: Config) -> Config:
    """Return the config with CTC alone as PaddleOCR takes it, whose MultiHead needs two heads."""
    architecture = config.at("Architecture").thaw()
    del architecture["fused"]
    backbone = {name: value for name, value in architecture["Backbone"].items() if name != "train_frames"}
    ctc = architecture["Head"]["head_list"][0]["CTCHead"]
    neck = {"encoder_type" if name == "name" else name: value for name, value in ctc["Neck"].items()}
    head = {"name": "CTCHead", "out_channels": CLASSES, **ctc["Head"]}
    parts = {"Backbone": backbone, "Neck": {"name": "SequenceEncoder", **neck}, "Head": head}
    return config.with_values({"Architecture": architecture | parts, "Loss": {"name": "CTCLoss"}})


def _our_step(config: Config, data: Sequence[Any], kind: str) -> Step:
    paddle.seed(0)
    model = build_model({**config.at("Architecture").thaw(), "fused": False})
    loss = build_loss(config.at("Loss").thaw())
    model.train()
    for norm in (each for each in model.sublayers() if isinstance(each, nn.BatchNorm2D)):
        # With the statistics of these images, numbers stay of the size that trained networks have.
        norm._momentum = 0.0
    with paddle.no_grad():
        model(data[0], data=data[1:])
    if kind.startswith(FUSED):
        model.eval()
        fuse_in_place(model)
        model.train()
    if kind.endswith(RECOMPUTED):
        recompute_blocks(model)
    optimizer = build_optimizer(config.at("Optimizer").thaw(), **LENGTH, model=model)[0]
    if dist.get_world_size() > 1:
        model = data_parallel(model, config.settings.find_unused_parameters)

    def step() -> None:
        loss(model(data[0], data=data[1:]), data)["loss"].backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)  # as in a run

    return step
