"""How fast an exported recogniser reads: each network, engine, batch and number of threads, in turns in one run.

`Recognizer.read` is measured over encoded images, beside the bare engine over the same images, already prepared.
"""

from __future__ import annotations

import copy
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import paddle
from paddle import nn
from paddle.static import InputSpec

from benchmarks.fresh import in_fresh_process
from benchmarks.peer import imported, require_peer, take_weights
from benchmarks.sizes import SIZES, charset_of, networks_of
from benchmarks.table import circumstances, report, verdict
from ppocr_ext.inference.formats import ExportedEngine, write_onnx
from ppocr_ext.inference.graph import IMAGES, write_reader
from ppocr_ext.inference.runners import GRAPH, ONNX, Engine
from ppocr_ext.modeling import build_model
from ppocr_ext.modeling.features import classifier_of, ctc_head_of
from ppocr_ext.recognition.images import WidthPolicy, read_image
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.recognizer import Recognizer

TOLERANCE = 1e-3  # of a probability, between the engines
# networks
TEACHER, STUDENT = "teacher", "student"
UNFOLDED, PEER = "student, not re-parameterised", "student, as PaddleOCR exports it"
# engines
RUNTIME, ONEDNN, PLAIN = "ONNX Runtime", "Paddle, oneDNN", "Paddle, without oneDNN"
ENGINES = (RUNTIME, ONEDNN, PLAIN)
READERS = (RUNTIME, ONEDNN)  # a Recognizer opens a folder with one of these
BARE, READ = "student, bare engine over the images to read", "student, Recognizer.read"
_TURN = 0.4  # a short call is repeated for so many seconds
_PATCH = 8  # pixels of one patch of a drawn image
# Factor of the classifier: with random weights all classes would have nearly the same probability.
_SHARPNESS = 60.0


@dataclass(frozen=True)
class InferCosts:
    """The setting in words, the calls as :func:`measure_calls` returns them, and the largest difference."""

    setting: str
    calls: Sequence[Mapping[str, Any]]
    difference: float

    @property
    def agrees(self) -> bool:
        """True if all forms and engines compute the same; NaN is no agreement."""
        return self.difference <= TOLERANCE

    def to_markdown(self) -> str:
        """Return a row for each kind of call."""
        rows = []
        for call in self.calls:
            seconds, images = np.asarray(call["seconds"]), call["images"]
            half, most = 1000 * np.percentile(seconds, (50, 95))
            rows.append(
                [str(call["threads"]), str(call["batch"]), call["what"], call["engine"]]
                + [f"{images / seconds.min():.1f}", f"{half:.1f}, {most:.1f}"]
                + [f"{1000 * min(call['cpu_seconds']) / images:.2f}"]
            )
        head = ["threads", "batch", "network", "engine", "images/s (best)", "p50, p95 of a call, ms"]
        result = (
            f"Forms of the student and engines {verdict(self.agrees)}: probabilities differ by at most "
            f"{self.difference:.1e} (limit {TOLERANCE:.0e})"
        )
        return report(self.setting, ([*head, "CPU ms an image (least)"], rows), result)


def measure_infer(
    size: str,
    batch: Sequence[int] = (1, 16),
    threads: Sequence[int] = (1, 2),
    rounds: int = 5,
    images: int = 48,
    peer: str | None = None,
) -> InferCosts:
    """Measure the engines with the networks of a distillation.

    Args:
        size: key of ``SIZES``.
        batch: images of each batch.
        threads: of an engine.
        rounds: measured turns after one to warm up.
        images: that ``Recognizer.read`` reads in a call.
        peer: folder of a PaddleOCR checkout; its form of the student is measured too.
    """
    root = None if peer is None else str(Path(peer).resolve())
    if root is not None:
        require_peer(Path(root))
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ppocr_ext_") as folder:
        models = in_fresh_process("benchmarks.infer:prepare", {"folder": folder, "size": size, "root": root})
        work = {"folders": models["folders"], "size": size, "batches": batch, "threads": threads}
        answer = in_fresh_process(
            "benchmarks.infer:measure_calls", {**work, "rounds": rounds, "images": images}
        )
    versions = f"Paddle {paddle.__version__}, ONNX Runtime {onnxruntime.__version__}"
    setting = f"{models['setting']}, {rounds} rounds, {versions}, {circumstances(before)}"
    return InferCosts(setting, answer["calls"], answer["difference"])


def prepare(folder: str, size: str, root: str | None) -> dict[str, Any]:
    """Write an inference model of each network, for Paddle Inference and for ONNX Runtime.

    ``root`` is a PaddleOCR checkout, whose form of the student is written too, or None.

    Returns:
        ``folders`` by the name of the network; ``setting`` in words.
    """
    (height, width), (config, charset) = SIZES[size][1], networks_of(size)
    architecture = config.at("Architecture").thaw()
    paddle.seed(0)
    model = build_model(architecture)
    for network in (model.Teacher, model.Student):
        _make_lively(network)
    forms = {TEACHER: model.Teacher}
    if root is not None:
        (architectures,) = imported(Path(root), "modeling.architectures")
        ours = ("pretrained", "freeze_params")
        student = architecture["Models"]["Student"]
        forms[PEER] = architectures.build_model({k: v for k, v in student.items() if k not in ours})
        take_weights(forms[PEER], model.Student.state_dict())
    forms |= {UNFOLDED: model.Student, STUDENT: model.Student}
    folders = {}
    for number, (form, network) in enumerate(forms.items()):
        place = Path(folder) / str(number)
        place.mkdir()
        if form in (TEACHER, STUDENT):
            write_reader(network, place, (3, height, width))
        else:
            _write_unchanged(network, place, height)
        write_onnx(place, {})
        folders[form] = str(place)
    return {"folders": folders, "setting": f"{size}: {height}x{width}, {charset.ctc_classes} classes"}


def _make_lively(network: nn.Layer) -> None:
    """Let each layer change the output: new BatchNorms are zero where a branch should do nothing at first."""
    for value in network.state_dict().values():
        if not bool(value.any()):
            value.set_value(paddle.uniform(value.shape, min=0.05, max=0.2))
    classifier = classifier_of(ctc_head_of(network)).weight
    classifier.set_value(classifier * _SHARPNESS)


def _write_unchanged(network: nn.Layer, folder: Path, height: int) -> None:
    """Write a network as PaddleOCR's export does: branches and BatchNorms stay as they are trained."""
    network = copy.deepcopy(network)  # Paddle replaces `forward` of a network that it compiles
    network.return_all_feats = False
    network.eval()
    spec = InputSpec([None, 3, height, None], "float32", name=IMAGES)
    static = paddle.jit.to_static(network, input_spec=[spec], full_graph=True)
    paddle.jit.save(static, str(folder / "inference"))


def measure_calls(
    folders: Mapping[str, str],
    size: str,
    batches: Sequence[int],
    threads: Sequence[int],
    rounds: int,
    images: int,
) -> dict[str, Any]:
    """Make all kinds of calls in turns; for the arguments see :func:`measure_infer`.

    Returns:
        ``calls``: for each kind ``threads``, ``batch``, ``what`` (network or reading), ``engine``, ``images`` of a
        call, and ``seconds`` and ``cpu_seconds`` (of all threads) of each call; ``difference``: the largest
        difference of a probability between forms and engines of one network.
    """
    _, (height, width) = SIZES[size]
    noise = np.random.default_rng(0).uniform(-1, 1, (max(batches), 3, height, width)).astype(np.float32)
    calls: list[dict[str, Any]] = []
    works: list[Callable[[], Any]] = []

    def add(what: str, engine: str, count: int, work: Callable[[], Any]) -> None:
        calls.append({"threads": number, "batch": batch, "what": what, "engine": engine, "images": count})
        calls[-1] |= {"seconds": [], "cpu_seconds": []}
        works.append(work)

    difference = 0.0
    for number in threads:
        engines = {
            (name, kind): _open(kind, Path(folder), number)
            for name, folder in folders.items()
            for kind in ENGINES
        }
        difference = max(difference, _difference(engines, noise[:1]))
        for batch in batches:
            for (name, kind), engine in engines.items():
                add(name, kind, batch, partial(engine.probabilities, noise[:batch]))
            for kind in READERS:
                for what, work in _readings(engines[STUDENT, kind], size, batch, images).items():
                    add(what, kind, images, work)
    for turn in range(rounds + 1):
        for call, work in zip(calls, works, strict=True):
            for wall, cpu in _repeat(work, _TURN if turn else 0):
                if turn:
                    call["seconds"].append(wall)
                    call["cpu_seconds"].append(cpu)
    return {"calls": calls, "difference": difference}


def _open(kind: str, folder: Path, threads: int) -> Engine:
    if kind == RUNTIME:
        return ExportedEngine("onnx", folder / ONNX, threads=threads)
    way = f"{GRAPH}, oneDNN" if kind == ONEDNN else f"{GRAPH}, no oneDNN"
    return ExportedEngine("paddle", folder, way=way, threads=threads)


def _difference(engines: Mapping[tuple[str, str], Engine], images: np.ndarray) -> float:
    """Return the largest difference of a probability; all forms of the student are one network."""
    outputs: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for (name, _), engine in engines.items():
        outputs[name == TEACHER].append(engine.probabilities(images))
    return max(float(np.abs(each - same[0]).max()) for same in outputs.values() for each in same)


def _readings(engine: Engine, size: str, batch: int, count: int) -> dict[str, Callable[[], Any]]:
    """Return the bare loop of an engine over prepared batches, and the reading of the encoded images."""
    policy = WidthPolicy("pad", (3, *SIZES[size][1]))
    reader = Recognizer(RecognizerParts(engine, policy, charset_of(size)))
    encoded = list(_encoded(count))
    inputs = [policy.prepare(read_image(each)) for each in encoded]
    batches = [np.stack(inputs[first : first + batch]) for first in range(0, count, batch)]
    return {
        BARE: lambda: [engine.probabilities(each) for each in batches],
        READ: partial(reader.read, encoded, batch),
    }


def _encoded(count: int) -> Iterator[bytes]:
    """Yield images of random patches of color as PNG: 60 pixels high, 160 to 400 wide."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        width = int(rng.integers(160, 401))
        patches = rng.integers(0, 256, (60 // _PATCH, width // _PATCH, 3), np.uint8)
        yield bytes(cv2.imencode(".png", cv2.resize(patches, (width, 60)))[1])


def _repeat(work: Callable[[], Any], least: float) -> Iterator[tuple[float, float]]:
    """Call once, and again until ``least`` seconds have passed; yield seconds and CPU seconds of each call."""
    first = end = time.perf_counter()
    while end == first or end - first < least:
        begin, cpu = end, time.process_time()
        work()
        end = time.perf_counter()
        yield end - begin, time.process_time() - cpu
