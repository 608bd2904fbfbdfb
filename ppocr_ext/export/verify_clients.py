"""Read images with the clients that are installed here, each in a process of its own.

PaddleOCR 2.x puts modules of its own in place of those that the trained network runs in, so the two cannot share a
process. What a client gives to ONNX Runtime, and what comes back, is recorded; nothing of it is changed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ppocr_ext.export import clients
from ppocr_ext.export.verify import Reader, Seen
from ppocr_ext.host.facade import open_text_recognizer
from ppocr_ext.inference.runners import ONNX
from ppocr_ext.recognition.opening import Exported
from ppocr_ext.recognition.resize import WidthPolicy

Read = Callable[[np.ndarray], Seen]


def open_clients(folder: Path, exported: Exported, stack: ExitStack) -> tuple[list[Reader], list[str]]:
    """Return a reader for each installed client that reads this export, and notes on the others.

    Args:
        folder: of the export.
        exported: what it says of itself.
        stack: ends the processes.
    """
    readers: list[Reader] = []
    notes = []
    for package, (release, _) in _CLIENTS.items():
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        if not version.startswith(f"{release}."):
            notes.append(f"{package} {version} is not compared: only version {release} is run from here")
        elif not exported.has(ONNX):
            notes.append(f"{package} {version} is not compared: it reads {ONNX}, which was not exported")
        else:
            pool = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
            see = partial(_see_in, pool, package, str(folder), exported.policy)
            own, note = _own_policy(package, exported), ""
            if own.kind != exported.policy.kind:
                note = (
                    f"it cannot {exported.policy.kind}, so it is compared with the network under {own.kind}"
                )
            readers.append(Reader(f"{package} {version}", see, "client", own, note))
    return readers, notes


def _own_policy(package: str, exported: Exported) -> WidthPolicy:
    """Return how a client prepares images: it widens long ones unless it squashes them."""
    takes_one_width = (
        exported.width is not None and package == "paddleocr"
    )  # it reads that width from the graph
    if exported.policy.kind == "squash" or takes_one_width:
        return exported.policy
    return replace(exported.policy, kind="widen", max_width=None)


def _see_in(
    pool: ProcessPoolExecutor, package: str, folder: str, policy: WidthPolicy, pixels: np.ndarray
) -> Seen:
    return pool.submit(_see, package, folder, policy, pixels).result()


def _see(package: str, folder: str, policy: WidthPolicy, pixels: np.ndarray) -> Seen:
    return _opened(package, folder, policy)(pixels)


@cache  # in the process of the client: one model for all images
def _opened(package: str, folder: str, policy: WidthPolicy) -> Read:
    return _CLIENTS[package][1](folder, policy)


def _paddleocr2(folder: str, policy: WidthPolicy) -> Read:
    """Return PaddleOCR 2.x, used as the lines in the model card do."""
    recognizer = open_text_recognizer(clients.paddleocr2_options(folder, policy))
    recognizer.predictor = recorder = _Recorder(recognizer.predictor)

    def see(pixels: np.ndarray) -> Seen:
        given = pixels[:, :, ::-1].copy() if policy.color == "RGB" else pixels
        texts, _ = recognizer([given])
        return Seen(texts[0][0], recorder.output[0], recorder.input[0])

    return see


def _rapidocr3(folder: str, policy: WidthPolicy) -> Read:
    """Return RapidOCR 3.x, used as the lines in the model card do."""
    engine = import_module("rapidocr").RapidOCR(params=clients.rapidocr_options(folder, policy))
    _, height, width = policy.image_shape
    recorder: _Recorder | None = None

    def see(pixels: np.ndarray) -> Seen:
        nonlocal recorder
        given = pixels
        if policy.kind == "squash":  # which it cannot do itself
            given = cv2.resize(given, (width, height))
        if policy.color == "RGB":
            given = given[:, :, ::-1].copy()
        if recorder is None:
            engine(given)  # opens the model
            recorder = engine.text_rec.session.session = _Recorder(engine.text_rec.session.session)
        text = "".join(engine(given).txts or ())
        return Seen(text, recorder.output[0], recorder.input[0])

    return see


class _Recorder:
    """An ONNX Runtime session that keeps its last input and output."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.input = self.output = np.zeros(0, np.float32)

    def run(self, names: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Call the session's own ``run``."""
        found = self._session.run(names, given)
        (self.input,), self.output = given.values(), found[0]
        return found

    def __getattr__(self, name: str) -> Any:
        """Return what the session has under a name."""
        return getattr(self._session, name)


# package: the release whose interface is used, and what opens it
_CLIENTS: dict[str, tuple[int, Callable[[str, WidthPolicy], Read]]] = {
    "paddleocr": (2, _paddleocr2),
    "rapidocr": (3, _rapidocr3),
}
