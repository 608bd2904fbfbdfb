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
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ppocr_ext.export import clients
from ppocr_ext.export.verify import Reader
from ppocr_ext.export.verify_steps import Seen
from ppocr_ext.host.text_recognizer import open_text_recognizer
from ppocr_ext.recognition.engines import ONNX
from ppocr_ext.recognition.exported import Exported
from ppocr_ext.recognition.resize import WidthPolicy

Read = Callable[[np.ndarray], Seen]


class ClientReader:
    """Read images with a client in a process of its own; see :class:`ppocr_ext.export.verify.Reader`.

    Args:
        name: of its package, with the version.
        folder: of the export.
        policy: of the export.
        own_policy: that the client has.
        pool: the process.
    """

    def __init__(
        self, name: str, folder: Path, policy: WidthPolicy, own_policy: WidthPolicy, pool: ProcessPoolExecutor
    ) -> None:
        self.name = name
        self.own_policy: WidthPolicy | None = own_policy
        self.note = ""
        if own_policy.kind != policy.kind:
            self.note = f"it cannot {policy.kind}, so it is compared with the network under {own_policy.kind}"
        self._folder, self._policy, self._pool = folder, policy, pool

    def see(self, pixels: np.ndarray) -> Seen:
        """See :class:`ppocr_ext.export.verify.Reader`."""
        return self._pool.submit(_see, str(self._folder), self._policy, pixels).result()


def open_clients(folder: Path, exported: Exported, stack: ExitStack) -> tuple[list[Reader], list[str]]:
    """Return a reader for each installed client that reads this export, and notes on the others.

    Args:
        folder: of the export.
        exported: what it says of itself.
        stack: ends the processes.
    """
    try:
        version = metadata.version("paddleocr")
    except metadata.PackageNotFoundError:
        return [], ["PaddleOCR's client is not compared: it is not installed here"]
    if not version.startswith("2."):
        return [], [f"PaddleOCR {version} is not compared: only its 2.x client is run from here"]
    if not exported.has(ONNX):
        return [], [f"PaddleOCR {version} is not compared: it reads {ONNX}, which was not exported"]
    pool = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
    own = exported.policy
    if own.kind != "squash":
        own = replace(own, kind="widen", max_width=None)
    return [ClientReader(f"paddleocr {version}", folder, exported.policy, own, pool)], []


def _see(folder: str, policy: WidthPolicy, pixels: np.ndarray) -> Seen:
    return _paddleocr2(folder, policy)(pixels)


@cache  # in the process of the client: one model for all images
def _paddleocr2(folder: str, policy: WidthPolicy) -> Read:
    """Return PaddleOCR 2.x, used as the lines in the model card do."""
    recognizer = open_text_recognizer(clients.paddleocr2_options(folder, policy))
    recognizer.predictor = recorder = _Recorder(recognizer.predictor)

    def see(pixels: np.ndarray) -> Seen:
        given = pixels[:, :, ::-1].copy() if policy.color == "RGB" else pixels
        texts, _ = recognizer([given])
        return Seen(texts[0][0], recorder.output[0], recorder.input[0])

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
