"""One trial: an ordinary training in a process and a run folder of its own, watched while it runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppocr_ext.errors import DataError
from ppocr_ext.loop.child import last_error, start_child, stop_child
from ppocr_ext.report.formats import finite_number
from ppocr_ext.report.run_folder import read_metrics, read_record

_POLL = 0.5  # seconds
# Less than one image in a million: it decides between equal accuracies only, above all between those that are still 0.
_TIE = 1e-6
_HINTS = {"SIGKILL": ", perhaps by the system for lack of memory"}

Evaluation = Mapping[str, Any]
OnEvaluation = Callable[[int, Evaluation], bool]  # number from 1, line of metrics.jsonl -> stop the trial


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended.

    Attributes:
        state: ``"finished"``, ``"pruned"`` (stopped, since it was behind the others) or ``"failed"``.
        reason: why it failed; else empty.
        best: its best evaluation, a line of its metrics.jsonl; empty without one.
        minutes: from its start to its end.
    """

    state: str
    reason: str
    best: Evaluation
    minutes: float


def objective(evaluation: Evaluation, indicator: str) -> float:
    """Return the number that a study maximises: the metric ``indicator``; ``norm_edit_dis`` decides between equals."""
    value, similarity = (finite_number(evaluation.get(name)) or 0.0 for name in (indicator, "norm_edit_dis"))
    return value + _TIE * similarity


def run_trial(command: list[str], folder: Path, indicator: str, on_evaluation: OnEvaluation) -> TrialResult:
    """Run ``ppocr-ext COMMAND``, which trains in ``folder``, until it ends; its output goes to ``FOLDER.log``.

    If ``on_evaluation`` returns True, or raises an exception (Ctrl-C), it ends as by SIGTERM: after the step in
    progress, with its checkpoint.
    """
    log, began, pruned, ended = folder.with_name(f"{folder.name}.log"), time.monotonic(), False, False
    lines: list[Evaluation] = []
    process = start_child(command, log)
    try:
        while not ended:
            ended = process.poll() is not None or pruned
            before = len(lines)
            with suppress(DataError):  # no metrics.jsonl yet
                # that of step 0 is of the weights that all trials start from
                lines = [line for line in read_metrics(folder).evals if line["step"]]
            pruned = pruned or any(on_evaluation(n, lines[n - 1]) for n in range(before + 1, len(lines) + 1))
            time.sleep(0 if ended else _POLL)
    finally:
        stop_child(process)
    best = max(lines, key=lambda line: objective(line, indicator), default={})
    reason = _failure(process.returncode, folder, log, bool(lines))
    state = "pruned" if pruned and reason else "failed" if reason else "finished"  # some have just finished
    return TrialResult(state, reason if state == "failed" else "", best, (time.monotonic() - began) / 60)


def _failure(code: int, folder: Path, log: Path, evaluated: bool) -> str:
    """Return why a training failed that ended with ``code``; empty if it finished."""
    record = read_record(folder)
    status = record.get("status")
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}{_HINTS.get(name, '')}"
    if code == 0 and status == "finished":
        return "" if evaluated else "it was never evaluated. Fix: a smaller Global.eval_batch_step"
    if status in ("collapsed", "nonfinite"):
        return f"{status}: {record.get('reason')}"
    return last_error(log) or f"it ended with exit code {code}; see {log.as_posix()}"
