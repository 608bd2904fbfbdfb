"""Read a run folder, complete or not, since a run may be killed at any moment.

``metrics.jsonl`` has one JSON object on each line; a number that is not finite is ``null``. ``eval --save-predictions``
and ``predict`` write UTF-8 text with a header, separated by tabs; control characters, and what a spreadsheet would take
for a formula, are quoted. ``run.json`` is one JSON object.

Keys of ``metrics.jsonl``:
    kind: ``train``, for a window of ``print_batch_step`` steps, or ``eval``.
    epoch: the epoch in progress, counted from 1.
    step: steps of the optimizer since the beginning of the run; 0 in the evaluation of the weights it starts from.
    time: seconds of training so far, evaluations included; a resumed run adds the time before the stop.
    lr: learning rate of the last step.
    loss: mean loss over the window.
    losses: the mean of each part of the loss, with its weight.
    ips: images a second, without evaluations.
    grad_norm: mean norm of the gradient before clipping.
    blank_share: share of frames that the CTC blank wins; ``blank_share_NAME`` of the sub-model NAME.
    blank_probability: mean probability of the blank in one step of the window. The next four are of this step too.
    text_length: mean length of the texts that CTC reads in the batch.
    distinct_texts: how many different texts.
    nrtr_end_share: share of text lines whose first NRTR token is ``</s>``.
    first_loss: the CTC loss of step 1.
    teacher_cached: share of batches that the teacher cache answered.
    skipped: steps without effect, because of a bad value.
    acc, norm_edit_dis, acc_with_space: for ``eval``, the numbers of the metric.
    nrtr_empty: for ``eval``, the share of empty texts that greedy NRTR decoding reads in a fixed batch.
    fps: for ``eval``, the images a second.
    general_acc, general_drop: for ``eval``, the accuracy on the lines of ``Eval.general`` that choose, if they were
        read, and what is lost of it; in ``best`` of ``run.json``, after the end, on those that report.
    is_best: for ``eval``, whether these weights became ``best_accuracy``; ``Eval.general`` may refuse better ones.

Keys of a file of predictions:
    image: path as in the label file.
    label: the whole text.
    prediction: the whole text.
    confidence: mean probability of the characters read; 0 if nothing was read.

Keys of ``run.json``:
    status: ``running``, ``finished``, ``stopped``, ``failed``, ``nonfinite``, ``not_kept`` or ``collapsed``.
    reason: the reason of the status, in words.
    started, ended: times in UTC.
    resumed_from: checkpoint that the run was resumed from, or ``null``.
    resumed_from_step: its step, or 0.
    command: as it was called.
    versions, host, device, processes, seed: what computed it.
    parameters: ``all`` and ``trained``, without BatchNorm's running statistics.
    parts: the parts of the networks: ``name``, ``parameters``, ``trained``, and ``rates``, the factors of the learning
        rate.
    dictionary: ``path``, ``classes`` (of CTC), ``digest``.
    label_files: path → SHA-256.
    frozen: frozen sub-model → digest of its state.
    engines: frozen sub-model → engine, of those compiled when the run began.
    official_weights: name → ``sha256``, ``address``, ``source``, of those that the run loaded.
    best: the best evaluation, and its ``best_epoch`` (0: of the weights that the run started from); ``share``: how far
        its weights are on the way from those before the training to the last ones, if they were chosen at the end.
    never_evaluated: which steps at the end of an unfinished run were never evaluated, in words.
    verdict: for a run that reads nothing, or only its training samples: ``code``, ``text``, ``causes``, and ``next``, a
        command.
    epoch, step_in_epoch, global_step: position at the end.
    failed_to_load: section → number of samples that failed when they were loaded, in process 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ppocr_ext.checkpoint.contents import POINTS
from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.limits import MAX_CONFIG_BYTES, json_object, read_at_most, read_json_object, read_text
from ppocr_ext.metrics import SPACES_IGNORED
from ppocr_ext.report.page_samples import SampleSet, read_prediction_samples, read_samples
from ppocr_ext.report.page_template import finite_number, percent, plain

# How a run can end (`status` in run.json), and the exit code of `train`. After a signal it is 128 + its number.
EXIT_CODES = {"finished": 0, "stopped": 0, "not_kept": 1, "collapsed": 1, "nonfinite": 1, "failed": 2}
METRICS_FILE = "metrics.jsonl"
RECORD_FILE = "run.json"
_INDICATOR_NAMES = {"acc": "accuracy", "norm_edit_dis": "1 − edit distance"}

Series = list[tuple[int, float]]  # (step, value), NaN for a step without a value


@dataclass(frozen=True)
class Metrics:
    """Lines of a ``metrics.jsonl``, in their order.

    Attributes:
        train: ``{"epoch", "step", "time", "lr", "loss", "losses": {…}, "ips"}`` for each window of steps.
        evals: ``{"epoch", "step", "acc", "norm_edit_dis", …}`` for each evaluation.
    """

    train: list[dict[str, Any]] = field(default_factory=list)
    evals: list[dict[str, Any]] = field(default_factory=list)

    def series(self, kind: Literal["train", "eval"], key: str) -> Series:
        """Return ``key``, such as ``loss`` or ``acc``, over the steps of the lines that have it.

        It is empty if no line has a number.
        """
        lines = self.train if kind == "train" else self.evals
        return _series((line["step"], line[key]) for line in lines if key in line)

    def loss_series(self, part: str) -> Series:
        """Return a part of the loss, named by :func:`short_loss_name`, over the steps."""
        named = (
            (line["step"], {short_loss_name(key): value for key, value in (line.get("losses") or {}).items()})
            for line in self.train
        )
        return _series((step, losses.get(part)) for step, losses in named)

    def loss_parts(self) -> list[str]:
        """Return the short names of the parts of the loss, in order of appearance."""
        parts = (part for line in self.train for part in line.get("losses") or {})
        return list(dict.fromkeys(short_loss_name(part) for part in parts))


def _series(points: Iterable[tuple[int, Any]]) -> Series:
    series = [(step, math.nan if finite_number(value) is None else float(value)) for step, value in points]
    return [] if all(math.isnan(value) for _, value in series) else series


def short_loss_name(name: str) -> str:
    """Return a name short enough for a legend: ``loss_ctc_Student_0`` and ``CTCLoss`` give ``ctc``."""
    if name.endswith("Loss") and "_" not in name:
        return name.removesuffix("Loss").lower() or name
    words = [w for w in name.split("_") if w not in ("loss", "Student") and not w.isdigit()]
    return "_".join(words) or name


def read_metrics(path: str | Path) -> Metrics:
    """Read ``metrics.jsonl``; ``path`` is the file or the folder of the run.

    A last line that is cut off, as after a kill, is skipped. Of two lines for a step, the later one counts.

    Raises:
        DataError: the file is missing, or a line before the last is invalid.
    """
    path = Path(path)
    file = path / METRICS_FILE if path.is_dir() else path
    try:
        texts = read_text(file).split("\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{file} cannot be read: {reason}. A run writes it into its folder (Global.save_model_dir).",
            code="unreadable_file",
        ) from error
    metrics = Metrics()
    last = max((index for index, text in enumerate(texts) if text.strip()), default=-1)
    for index, text in enumerate(texts[: last + 1]):
        if line := metrics_line(text):
            kept = metrics.train if line["kind"] == "train" else metrics.evals
            while kept and kept[-1]["step"] >= line["step"]:
                kept.pop()
            kept.append(line)
        elif text.strip() and index != last:
            raise DataError(
                f"{file}:{index + 1}: not a line of {METRICS_FILE} (found {text[:80]!r}).", code="bad_content"
            )
    return metrics


def metrics_line(text: str) -> dict[str, Any]:
    """Return the content of a line of ``metrics.jsonl``; empty if it has another form."""
    try:
        line = json_object(text)
    except ValueError:
        return {}
    is_step = line.get("kind") in ("train", "eval") and type(line.get("step")) is int
    is_good = isinstance(line.get("losses") or {}, dict) and finite_number(line.get("time", 0)) is not None
    return line if is_step and is_good else {}


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
        name: the name in legends: that of the folder, with its parents if two names are equal.
        metrics: ``metrics.jsonl``.
        record: ``run.json``.
        preflight: ``preflight.json``.
        general: ``general.json``.
        config: ``config.yml`` as plain values.
        config_text: ``config.yml`` as text.
        samples: the samples of the last evaluation, and of predictions files.
        notes: what is missing or cannot be read.
    """

    folder: Path
    name: str
    metrics: Metrics = field(default_factory=Metrics)
    record: dict[str, Any] = field(default_factory=dict)
    preflight: dict[str, Any] = field(default_factory=dict)
    general: dict[str, Any] = field(default_factory=dict)
    config: dict[Any, Any] = field(default_factory=dict)
    config_text: str = ""
    samples: list[SampleSet] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Return :func:`status_of` the record."""
        return status_of(self.record)

    @property
    def ignores_spaces(self) -> bool:
        """True if the accuracies of the evaluations ignore spaces; False for a metric that is not ours."""
        name = lookup(self.config, "Metric", "name")
        if name == "DistillationMetric":
            name = lookup(self.config, "Metric", "base_metric_name") or "RecMetric"
        return name == "RecMetric" and lookup(self.config, "Metric", "ignore_space") is not False

    @property
    def indicator(self) -> str:
        """Return the name of the metric that decides which checkpoint is best."""
        return str(lookup(self.config, "Metric", "main_indicator") or "acc")

    @property
    def best(self) -> Mapping[str, Any]:
        """Return :func:`best_of` the run."""
        return best_of(self.metrics.evals, self.indicator, self.record)

    @property
    def indicator_name(self) -> str:
        """Return the name of that metric as pages show it."""
        return _INDICATOR_NAMES.get(self.indicator, self.indicator)


def best_of(
    evaluations: Iterable[Mapping[str, Any]], indicator: str, record: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Return what the weights of ``best_accuracy`` read, as the run chose them; empty if it refused all.

    This is a line of ``evaluations``; or, without a step, ``best`` of ``run.json``, if its weights were chosen at the
    end. If no line tells, as in older runs, it is the one with the greatest number, the last of equal ones.
    """
    if isinstance(chosen := lookup(record, "best"), dict) and "share" in chosen:
        return chosen
    lines = [line for line in evaluations if finite_number(line.get(indicator)) is not None]
    marked = [line for line in lines if line.get("is_best")]
    are_judged = marked or any("general_acc" in line for line in lines)
    return [{}, *(marked if are_judged else sorted(lines, key=lambda line: float(line[indicator])))][-1]


def origin_of(best: Mapping[str, Any]) -> str:
    """Return which weights a :func:`best_of` is of, in words; empty for none."""
    share = finite_number(best.get("share"))
    if 0 in (share, best.get("step")):
        return "of the start weights"
    if share is not None:
        return f"of weights at {percent(share)} of the way from the start weights to the last ones"
    return f"at step {plain(best['step'])}" if best else ""


def status_of(record: Mapping[str, Any]) -> str:
    """Return the status in a ``run.json``: a key of :data:`EXIT_CODES`, ``running`` (or killed) or ``unknown``."""
    status = record.get("status")
    return str(status) if status in (*EXIT_CODES, "running") else "unknown"


def unevaluated(evaluated: int, step: int) -> str:
    """Return which steps after the last evaluation, up to ``step``, were never evaluated; empty if there are none."""
    if evaluated >= step:
        return ""
    if evaluated + 1 == step:
        return f"step {step} was never evaluated"
    return f"steps {evaluated + 1} to {step} were never evaluated"


def read_runs(paths: Sequence[str | Path]) -> list[RunFolder]:
    """Read run folders. A folder that is not a run folder stands for the runs in it.

    Raises:
        DataError: a path is neither a run folder nor a folder with runs.
    """
    folders: list[Path] = []
    for path in map(Path, paths):
        runs = [path] if _is_run(path) else []
        if not runs and path.is_dir():
            runs = [folder for folder in path.iterdir() if _is_run(folder)]
            runs.sort(key=lambda folder: (str(read_record(folder).get("started", "")), folder))
        if not runs:
            raise DataError(
                f"{path}: no run folder, and no folder of runs (found neither {METRICS_FILE} nor {RECORD_FILE}). "
                f"Fix: give the folder that a run writes to (Global.save_model_dir)",
                code="no_run",
            )
        folders += [run for run in runs if run not in folders]
    parts = [folder.resolve().parts for folder in folders]
    depths = range(1, max(map(len, parts), default=0) + 1)
    short = (["/".join(part[-depth:]) for part in parts] for depth in depths)
    names = next((each for each in short if len(set(each)) == len(each)), [*map(str, folders)])
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def _is_run(path: Path) -> bool:
    return (path / METRICS_FILE).is_file() or (path / RECORD_FILE).is_file()


def _read(folder: Path, name: str) -> RunFolder:
    files: dict[str, Any] = {}
    notes = []
    try:
        files["metrics"] = read_metrics(folder)
    except DataError as error:
        notes.append(str(error))
    for file, attribute in ((RECORD_FILE, "record"), ("preflight.json", "preflight")):
        files[attribute] = read_record(folder, file)
        if not files[attribute]:
            notes.append(f"{file} is missing or cannot be read.")
    files["general"] = read_record(folder, POINTS)
    try:
        files["config_text"] = read_at_most(folder / "config.yml", MAX_CONFIG_BYTES).decode("utf-8")
        files["config"] = load([folder / "config.yml"]).thaw()
    except (OSError, ValueError, ConfigError):
        notes.append("config.yml is missing or cannot be read.")
    run = RunFolder(folder, name, **files, notes=notes)
    try:
        run.samples.extend(read_samples(folder, SPACES_IGNORED if run.ignores_spaces else ""))
    except (OSError, ValueError) as error:
        notes.append(f"samples.json cannot be read: {error}.")
    data_dir = lookup(run.config, "Eval", "dataset", "data_dir")
    others = read_prediction_samples(folder, Path(data_dir) if isinstance(data_dir, str) else None)
    notes += [f"{sample_set.source}: {sample_set.note}." for sample_set in others if sample_set.note]
    run.samples.extend(others)
    return run


def read_record(folder: Path, file: str = RECORD_FILE) -> dict[str, Any]:
    """Return the object in a file of a run folder; empty if the file is missing or broken, as after a kill."""
    try:
        return read_json_object(folder / file)
    except (OSError, ValueError):
        return {}
