"""Write ``run.json``: what is needed to repeat or to assess a run."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle
import paddle.distributed as dist

from ppocr_ext import __version__
from ppocr_ext.checkpoint.model_state import count_parameters
from ppocr_ext.data.load_failures import LoadFailures
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position
from ppocr_ext.run.run import Run

_LOG = logging.getLogger("ppocr_ext")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for piece in iter(lambda: stream.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


class RunRecord(Hook):
    """Write ``run.json`` at the start, and again at each evaluation and at the end."""

    def __init__(self, command: list[str] | None = None) -> None:
        self._command = sys.argv if command is None else command
        self._path: Path | None = None
        self._record: dict[str, Any] = {}
        self._failures: Mapping[str, LoadFailures] = {}

    def on_start(self, run: Run, position: Position) -> None:
        if dist.get_rank() != 0:
            return
        self._path = run.folder / "run.json"
        counts = {"all": count_parameters(run.network), "trained": count_parameters(run.network, True)}
        self._record = {
            "status": "running",
            "started": _now(),
            "resumed_from": run.config.at("Global.checkpoints", default=None),
            "resumed_from_step": position.global_step,
            "best": dict(run.best),
            "command": self._command,
            "versions": {
                "ppocr_ext": __version__,
                "paddle": paddle.__version__,
                "numpy": np.__version__,
                "opencv": cv2.__version__,
                "python": platform.python_version(),
            },
            "host": {"form": run.host.form, "root": str(run.host.root), "version": run.host.version},
            "device": str(run.device),
            "processes": dist.get_world_size(),
            "seed": run.seed,
            "parameters": counts,
            "dictionary": {
                "path": str(run.charset.path) if run.charset.path else None,
                "classes": run.charset.ctc_classes,
                "digest": run.charset.digest,
            },
            "label_files": {str(path): file_digest(path) for path in run.label_files},
            "frozen": run.frozen_digests,
        }
        self._failures = run.load_failures
        self._write()

    def on_eval(self, result: EvalDone) -> None:
        self._record["best"] = dict(result.best)
        self._write()

    def on_end(self, outcome: Outcome) -> None:
        position = outcome.position.completed()
        self._record |= {
            "status": outcome.status,
            "reason": outcome.reason,
            "ended": _now(),
            "epoch": position.epoch,
            "step_in_epoch": position.step_in_epoch,
            "global_step": position.global_step,
            "best": dict(outcome.best),
            "failed_to_load": {mode: found.count for mode, found in self._failures.items()},
        }
        self._write()
        for summary in filter(None, (found.summary() for found in self._failures.values())):
            _LOG.warning("%s", summary)

    def _write(self) -> None:
        if self._path is not None:
            write_text(self._path, json.dumps(self._record, indent=2, ensure_ascii=False) + "\n")
