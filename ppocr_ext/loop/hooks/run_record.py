"""Write ``run.json``, ``config.yml``, ``host_config.json`` and ``preflight.json``, so that a run can be repeated."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import paddle
import paddle.distributed as dist

from ppocr_ext import __version__
from ppocr_ext.checkpoint.weights import count_parameters
from ppocr_ext.config import Config
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.resources import file_digest
from ppocr_ext.limits import read_json_object
from ppocr_ext.loop.events import EvalDone, Hook, Outcome, Position
from ppocr_ext.messages import LOG
from ppocr_ext.optim.optimizers import trained_parts
from ppocr_ext.report.run_folder import RECORD_FILE, unevaluated
from ppocr_ext.run.compiled_models import engine_names
from ppocr_ext.run.data_check import preflight_json
from ppocr_ext.run.run import Run


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


class RunRecord(Hook):
    """Write the configs and ``run.json`` at the start, and ``run.json`` again later (a hook of process 0)."""

    def on_start(self, run: Run, position: Position) -> None:
        self._run = run
        self._path = run.folder / RECORD_FILE
        _write_configs(run)
        self._record: dict[str, Any] = {
            "status": "running",
            "started": _now(),
            "resumed_from": run.config.settings.checkpoints,
            "resumed_from_step": position.global_step,
            "best": dict(run.best),
            "command": sys.argv,
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
            "parameters": {
                "all": count_parameters(run.network),
                "trained": count_parameters(run.network, True),
            },
            "parts": [dataclasses.asdict(part) for part in trained_parts(run.network)],
            "dictionary": {
                "path": str(run.charset.path) if run.charset.path else None,
                "classes": run.charset.ctc_classes,
                "digest": run.charset.digest,
            },
            "label_files": {str(path): file_digest(path) for path in run.label_files},
            "frozen": run.frozen_digests,
            "engines": engine_names(run.engines),
            "official_weights": run.official_weights,
        }
        _write_json(self._path, self._record)

    def add(self, key: str, value: Any) -> None:
        """Add an entry to ``run.json``, also after the end."""
        self._record[key] = value
        _write_json(self._path, self._record)

    def on_eval(self, result: EvalDone) -> None:
        self.add("best", dict(result.best))

    def on_end(self, outcome: Outcome) -> None:
        position = outcome.position.completed()
        failures = self._run.load_failures
        never = (
            "" if "Eval" not in self._run.loaders else unevaluated(outcome.evaluated, position.global_step)
        )
        self._record |= {
            "status": outcome.status,
            "reason": outcome.reason,
            "ended": _now(),
            "epoch": position.epoch,
            "step_in_epoch": position.step_in_epoch,
            "global_step": position.global_step,
            "best": dict(outcome.best),
            "never_evaluated": never,
            "failed_to_load": {mode: found.count for mode, found in failures.items()},
        }
        _write_json(self._path, self._record)
        if never:
            LOG.warning("%s", never)
        for found in failures.values():
            if summary := found.summary():
                LOG.warning("%s", summary)


def record_loss(folder: Path, reason: str, step: int | None) -> None:
    """Write into ``run.json`` that the run has failed because another process is lost; for any process of a run.

    Raises:
        OSError: the file cannot be written.
    """
    path = folder / RECORD_FILE
    before = read_json_object(path) if path.is_file() else {}
    _write_json(path, before | {"status": "failed", "reason": reason, "ended": _now(), "global_step": step})


def _write_configs(run: Run) -> None:
    config = run.config
    # A run from this config must not resume; run.json names the checkpoint that this run resumes from.
    if config.settings.checkpoints:
        config = config.with_values({"Global.checkpoints": None})
    if run.official_weights:  # with a place of its own, since computed values are not read back
        records = Config(run.official_weights, "the weights that were loaded")
        config = config.with_values({"Global.official_weights": records})
    # Tell a user who edits a computed value why that has no effect.
    note = "\n# Computed again when this file is read; to set one of these by hand, take its path out.\ncomputed:"
    write_text(run.folder / "config.yml", config.to_yaml().replace("\ncomputed:", note, 1))
    _write_json(run.folder / "host_config.json", run.host_config)
    _write_json(run.folder / "preflight.json", preflight_json(run.preflight, run.config_warnings))


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")
