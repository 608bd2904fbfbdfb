"""What is left of a run in its folder, however little: a run may have been killed at any moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.metrics_file import METRICS_FILE, Metrics, read_metrics
from ppocr_ext.report.samples import SampleSet, read_predictions, read_samples

_RECORD_FILE = "run.json"


@dataclass
class RunData:
    """A run as its folder tells of it.

    Attributes:
        name: for legends; that of the folder, with parents where two are alike.
        record: ``run.json``; ``preflight``: ``preflight.json``; ``config``: ``config.yml``, as plain values.
        config_text: ``config.yml`` as it stands.
        samples: of the last evaluation, and of predictions files.
        notes: what is missing or cannot be read, in words.
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

    def at(self, *keys: str) -> Any:
        """A value of the config; None where it has none."""
        return _at(self.config, *keys)

    def of_record(self, *keys: str) -> Any:
        """A value of ``run.json``; None where it has none."""
        return _at(self.record, *keys)

    @property
    def ignores_spaces(self) -> bool:
        """Return whether the accuracies of the evaluations ignore spaces; False of a metric that is not ours."""
        name = self.at("Metric", "name")
        if name == "DistillationMetric":
            name = self.at("Metric", "base_metric_name") or "RecMetric"
        return name == "RecMetric" and self.at("Metric", "ignore_space") is not False

    @property
    def indicator(self) -> str:
        """The metric that decides what the best is."""
        return str(self.at("Metric", "main_indicator") or "acc")


def _at(values: Any, *keys: str) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def find_runs(paths: Sequence[str | Path]) -> list[Path]:
    """Run folders among ``paths``; a folder that is none stands for the runs in it.

    Raises:
        DataError: a path is neither.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        runs = [path] if _is_run(path) else []
        if not runs and path.is_dir():
            runs = sorted(folder for folder in path.iterdir() if _is_run(folder))
            runs.sort(key=lambda folder: str(_json(folder / _RECORD_FILE).get("started", "")))
        if not runs:
            raise DataError(
                f"{path} is no run, nor a folder of runs: there is no {METRICS_FILE} or {_RECORD_FILE}. Give the "
                f"folder that a run writes to (Global.save_model_dir)."
            )
        found += [run for run in runs if run not in found]
    return found


def _is_run(path: Path) -> bool:
    return (path / METRICS_FILE).is_file() or (path / _RECORD_FILE).is_file()


def read_runs(folders: Sequence[Path]) -> list[RunData]:
    """What the ``folders`` tell; names tell them apart."""
    return [_read(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def _names(folders: Sequence[Path]) -> list[str]:
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def _read(folder: Path, name: str) -> RunData:
    run = RunData(folder, name)
    try:
        run.metrics = read_metrics(folder)
    except DataError as fault:
        run.notes.append(str(fault))
    for file, attribute in ((_RECORD_FILE, "record"), ("preflight.json", "preflight")):
        values = _json(folder / file)
        setattr(run, attribute, values)
        if not values:
            run.notes.append(f"{file} is missing or cannot be read.")
    _read_config(run)
    _read_samples(run)
    return run


def _json(file: Path) -> dict[str, Any]:
    """The object in ``file``; empty where there is none, as after a kill."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _read_config(run: RunData) -> None:
    file = run.folder / "config.yml"
    try:
        run.config_text = file.read_text(encoding="utf-8")
        run.config = load([file]).thaw()
    except (OSError, UnicodeDecodeError, ConfigError):
        run.notes.append("config.yml is missing or cannot be read.")


def _read_samples(run: RunData) -> None:
    try:
        own = read_samples(run.folder)
    except ValueError as fault:
        own = None
        run.notes.append(f"samples.json cannot be read: {fault}.")
    data_dir = run.at("Eval", "dataset", "data_dir")
    others = read_predictions(run.folder, Path(data_dir) if isinstance(data_dir, str) else None)
    run.notes += [f"{found.source}: {found.note}." for found in others if found.note]
    if own is not None and run.ignores_spaces:
        own = replace(own, rule=SPACES_IGNORED)
    run.samples = [*([own] if own is not None else []), *others]
