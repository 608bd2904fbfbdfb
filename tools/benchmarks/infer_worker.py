"""Engines over prepared batches, and `Recognizer.read` over encoded images, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import onnxruntime
import paddle

from benchmarks.infer import BARE, ONEDNN, PLAIN, READ, RUNTIME, STUDENT, TEACHER
from benchmarks.sizes import SIZES, charset_of
from ppocr_ext.inference.formats import ExportedEngine
from ppocr_ext.inference.runners import GRAPH, ONNX, Engine
from ppocr_ext.recognition.images import WidthPolicy, read_image
from ppocr_ext.recognition.opening import RecognizerParts
from ppocr_ext.recognition.recognizer import Recognizer

ENGINES = (RUNTIME, ONEDNN, PLAIN)
_WAYS = {ONEDNN: f"{GRAPH}, oneDNN", PLAIN: f"{GRAPH}, no oneDNN"}
READERS = (RUNTIME, ONEDNN)  # that an exported folder is opened with
_TURN = 0.4  # seconds that a short call is repeated for
_PATCH = 8  # pixels of one patch of a drawn image


class Call(NamedTuple):
    """What is measured: ``work``, and what :class:`benchmarks.infer.Speed` says of it."""

    threads: int
    batch: int
    what: str
    engine: str
    images: int
    work: Callable[[], Any]


def measure(
    folders: Mapping[str, str],
    size: str,
    batches: Sequence[int],
    threads: Sequence[int],
    rounds: int,
    images: int,
) -> dict[str, Any]:
    """Make all calls in turns.

    Args:
        folders: of the networks, as :func:`benchmarks.infer_data.prepare` returns them.
        size: ``"tiny"`` or ``"full"``.
        batches: images of a batch.
        threads: of an engine.
        rounds: measured turns, after one call of each kind to warm up.
        images: that ``Recognizer.read`` reads in a call.

    Returns:
        ``calls``: of each, the attributes of :class:`benchmarks.infer.Speed`; ``difference``: the largest of a
        probability between forms and engines of one network; ``versions``.
    """
    _, (height, width) = SIZES[size]
    noise = np.random.default_rng(0).uniform(-1, 1, (max(batches), 3, height, width)).astype(np.float32)
    calls, difference = [], 0.0
    for count in threads:
        engines = {
            (name, kind): _open(kind, Path(folder), count)
            for name, folder in folders.items()
            for kind in ENGINES
        }
        difference = max(difference, _difference(engines, noise[:1]))
        for batch in batches:
            for (name, kind), engine in engines.items():
                work = partial(engine.probabilities, noise[:batch])
                calls.append(Call(count, batch, name, kind, batch, work))
            for kind in READERS:
                pair = _pair(engines[STUDENT, kind], size, batch, images)
                calls += [Call(count, batch, what, kind, images, work) for what, work in pair.items()]
    found = [call._asdict() | {"seconds": [], "cpu_seconds": []} for call in calls]
    for turn in range(rounds + 1):
        for each in found:
            for wall, cpu in _repeat(each["work"], _TURN if turn else 0):
                each["seconds"] += [wall] * bool(turn)
                each["cpu_seconds"] += [cpu] * bool(turn)
    for each in found:
        del each["work"]
    return {
        "calls": found,
        "difference": difference,
        "versions": f"Paddle {paddle.__version__}, ONNX Runtime {onnxruntime.__version__}",
    }


def _open(kind: str, folder: Path, threads: int) -> Engine:
    if kind == RUNTIME:
        return ExportedEngine("onnx", folder / ONNX, threads=threads)
    return ExportedEngine("paddle", folder, way=_WAYS[kind], threads=threads)


def _difference(engines: Mapping[tuple[str, str], Engine], images: np.ndarray) -> float:
    """Return the largest difference of a probability; all forms of the student are one network."""
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for (name, _), engine in engines.items():
        found[name == TEACHER].append(engine.probabilities(images))
    return max(float(np.abs(each - same[0]).max()) for same in found.values() for each in same)


def _pair(engine: Engine, size: str, batch: int, count: int) -> dict[str, Callable[[], Any]]:
    """Return the bare loop of an engine over prepared batches, and the reading of the encoded images."""
    policy = WidthPolicy("pad", (3, *SIZES[size][1]))
    reader = Recognizer(RecognizerParts(engine, policy, charset_of(size), reorder=False))
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
    """Yield seconds and CPU seconds of each call, of one at least and until ``least`` seconds have passed."""
    first = ended = time.perf_counter()
    while ended == first or ended - first < least:
        began, cpu = ended, time.process_time()
        work()
        ended = time.perf_counter()
        yield ended - began, time.process_time() - cpu
