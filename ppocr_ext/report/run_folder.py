"""Read a run folder, complete or not: a run may have been killed at any moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.metrics_file import METRICS_FILE, Metrics, read_metrics
from ppocr_ext.report.page_samples import SampleSet, read_prediction_samples, read_samples

_RECORD_FILE = "run.json"
_INDICATOR_NAMES = {"acc": "accuracy", "norm_edit_dis": "1 − edit distance"}


def lookup(values: Any, *keys: str) -> Any:
    """Return the value at ``keys`` of nested dicts, or None."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


@dataclass(frozen=True)
class RunFolder:
    """Content of a run folder; a file that is missing or broken counts as empty.

    Attributes:
        folder: its path.
        name: for legends: the folder's name, with parents if two names are equal.
        metrics: ``metrics.jsonl``.
        record: ``run.json``.
        preflight: ``preflight.json``.
        config: ``config.yml`` as plain values.
        config_text: ``config.yml`` as text.
        samples: of the last evaluation, and of predictions files.
        notes: what is missing or cannot be read.
    """

    folder: Path
    name: str
    metrics: Metrics = field(default_factory=Metrics)
    record: dict[str, Any] = field(default_factory=dict)
    preflight: dict[str, Any] = field(default_factory=dict)
    config: dict[Any, Any] = field(default_factory=dict)
    config_text: str = ""
    samples: list[SampleSet] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """``finished``, ``stopped``, ``failed``, ``running`` (or killed), or ``unknown``."""
        status = self.record.get("status")
        return status if status in ("finished", "stopped", "failed", "running") else "unknown"

    @property
    def ignores_spaces(self) -> bool:
        """True if the accuracies of the evaluations ignore spaces; False for a metric that is not ours."""
        name = lookup(self.config, "Metric", "name")
        if name == "DistillationMetric":
            name = lookup(self.config, "Metric", "base_metric_name") or "RecMetric"
        return name == "RecMetric" and lookup(self.config, "Metric", "ignore_space") is not False

    @property
    def indicator(self) -> str:
        """Name of the metric that decides which checkpoint is best."""
        return str(lookup(self.config, "Metric", "main_indicator") or "acc")

    @property
    def indicator_name(self) -> str:
        """Name of that metric as pages show it."""
        return _INDICATOR_NAMES.get(self.indicator, self.indicator)


def read_runs(paths: Sequence[str | Path]) -> list[RunFolder]:
    """Read run folders; a path that is not a run folder stands for the runs in it.

    Raises:
        DataError: a path is neither.
    """
    folders: list[Path] = []
    for path in map(Path, paths):
        runs = [path] if _is_run(path) else []
        if not runs and path.is_dir():
            runs = sorted(folder for folder in path.iterdir() if _is_run(folder))
            runs.sort(key=lambda folder: str(_json(folder / _RECORD_FILE).get("started", "")))
        if not runs:
            raise DataError(
                f"{path}: no run folder, and no folder of runs (found neither {METRICS_FILE} nor {_RECORD_FILE}). "
                f"Fix: give the folder that a run writes to (Global.save_model_dir)",
                code="no_run",
            )
        folders += [run for run in runs if run not in folders]
    return [_read(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def _is_run(path: Path) -> bool:
    return (path / METRICS_FILE).is_file() or (path / _RECORD_FILE).is_file()


def _names(folders: Sequence[Path]) -> list[str]:
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _read(folder: Path, name: str) -> RunFolder:
    files: dict[str, Any] = {}
    notes = []
    try:
        files["metrics"] = read_metrics(folder)
    except DataError as error:
        notes.append(str(error))
    for file, attribute in ((_RECORD_FILE, "record"), ("preflight.json", "preflight")):
        files[attribute] = _json(folder / file)
        if not files[attribute]:
            notes.append(f"{file} is missing or cannot be read.")
    try:
        files["config_text"] = (folder / "config.yml").read_text(encoding="utf-8")
        files["config"] = load([folder / "config.yml"]).thaw()
    except (OSError, UnicodeDecodeError, ConfigError):
        notes.append("config.yml is missing or cannot be read.")
    run = RunFolder(folder, name, **files, notes=notes)
    try:
        run.samples.extend(read_samples(folder, SPACES_IGNORED if run.ignores_spaces else ""))
    except ValueError as error:
        notes.append(f"samples.json cannot be read: {error}.")
    data_dir = lookup(run.config, "Eval", "dataset", "data_dir")
    others = read_prediction_samples(folder, Path(data_dir) if isinstance(data_dir, str) else None)
    notes += [f"{found.source}: {found.note}." for found in others if found.note]
    run.samples.extend(others)
    return run


def _json(file: Path) -> dict[str, Any]:
    """Return the object in ``file``; empty if the file is missing or broken, as after a kill."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
