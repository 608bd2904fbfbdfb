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

from ppocr_ext import __version__
from ppocr_ext.checkpoint.weights import count_parameters
from ppocr_ext.config import Config
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.resources import file_digest
from ppocr_ext.limits import read_json_object
from ppocr_ext.loop.events import EvalDone, Hook, Outcome
from ppocr_ext.messages import LOG
from ppocr_ext.optim.optimizers import trained_parts
from ppocr_ext.report.run_folder import RECORD_FILE, unevaluated
from ppocr_ext.run.compiled_models import engine_names
from ppocr_ext.run.data_check import label_files_of, preflight_json
from ppocr_ext.run.model_setup import Records
from ppocr_ext.run.run import Run, Training


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


class RunRecord(Hook):
    """Write the configs and ``run.json`` at the start, and ``run.json`` again later (a hook of process 0)."""

    def on_start(self, run: Run, training: Training) -> None:
        self._data = run.data
        context = run.context
        self._path = context.folder / RECORD_FILE
        _write_configs(run, training.official_weights)
        self._record: dict[str, Any] = {
            "status": "running",
            "started": _now(),
            "resumed_from": context.config.settings.checkpoints,
            "resumed_from_step": training.start.global_step,
            "best": dict(training.best),
            "command": sys.argv,
            "versions": {
                "ppocr_ext": __version__,
                "paddle": paddle.__version__,
                "numpy": np.__version__,
                "opencv": cv2.__version__,
                "python": platform.python_version(),
            },
            "host": {
                "form": context.host.form,
                "root": str(context.host.root),
                "version": context.host.version,
            },
            "device": context.device,
            "processes": context.team.size,
            "seed": context.seed,
            "parameters": {
                "all": count_parameters(run.network),
                "trained": count_parameters(run.network, True),
            },
            "parts": [dataclasses.asdict(part) for part in trained_parts(run.network)],
            "dictionary": {
                "path": str(context.charset.path) if context.charset.path else None,
                "classes": context.charset.ctc_classes,
                "digest": context.charset.digest,
            },
            "label_files": {
                str(path): file_digest(path)
                for mode in run.data.loaders
                for path in label_files_of(context.config, mode)
            },
            "frozen": training.frozen_digests,
            "engines": engine_names(run.engines),
            "official_weights": training.official_weights,
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
        failures = self._data.load_failures
        evaluates = "Eval" in self._data.loaders
        never = unevaluated(outcome.evaluated, position.global_step) if evaluates else ""
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


def _write_configs(run: Run, official_weights: Records) -> None:
    context = run.context
    config = context.config
    # A run from this config must not resume; run.json names the checkpoint that this run resumes from.
    if config.settings.checkpoints:
        config = config.with_values({"Global.checkpoints": None})
    if official_weights:  # with a place of its own, since computed values are not read back
        records = Config(official_weights, "the weights that were loaded")
        config = config.with_values({"Global.official_weights": records})
    # Tell a user who edits a computed value why that has no effect.
    note = "\n# Computed again when this file is read; to set one of these by hand, take its path out.\ncomputed:"
    write_text(context.folder / "config.yml", config.to_yaml().replace("\ncomputed:", note, 1))
    _write_json(context.folder / "host_config.json", run.host_config)
    _write_json(
        context.folder / "preflight.json", preflight_json(run.data.preflight, context.config_warnings)
    )


def _write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")
