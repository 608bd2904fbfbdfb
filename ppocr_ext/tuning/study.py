"""A study with Optuna, which proposes settings, decides which trials to prune, and keeps them in a SQLite file."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError, DataError
from ppocr_ext.loop.signals import last_error, start_child, stop_child
from ppocr_ext.messages import end_text
from ppocr_ext.report.page_template import finite_number
from ppocr_ext.report.run_folder import best_of, read_metrics, read_record, status_of
from ppocr_ext.tuning.space import Parameter, Space

_POLL = 0.5  # seconds between two reads of metrics.jsonl
# Less than one image in a million: it decides only between equal accuracies, such as those that are still 0.
_TIE = 1e-6

Evaluation = Mapping[str, Any]
OnEvaluation = Callable[[int, Evaluation], bool]  # number from 1, best evaluation so far -> stop the trial


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended.

    Attributes:
        state: ``"finished"``, ``"pruned"`` (stopped, since it was worse than others), ``"not_kept"`` (``Eval.general``
            refused all its weights) or ``"failed"``.
        reason: why it failed or kept nothing; empty if it did not.
        best: what its best weights read, :func:`best_of` its run; empty if there are none.
        minutes: the time from its start to its end.
    """

    state: str
    reason: str
    best: Evaluation
    minutes: float


def objective(evaluation: Evaluation, indicator: str) -> float:
    """Return the number that a study maximises, the metric ``indicator``; ``norm_edit_dis`` decides between equals."""
    value, similarity = (finite_number(evaluation.get(name)) or 0.0 for name in (indicator, "norm_edit_dis"))
    return value + _TIE * similarity


def run_trial(command: list[str], folder: Path, indicator: str, on_evaluation: OnEvaluation) -> TrialResult:
    """Run ``ppocr-ext COMMAND``, which trains in ``folder``, until it ends. Its output goes to ``FOLDER.log``.

    If ``on_evaluation`` returns True, or raises an exception (Ctrl-C), the training gets SIGTERM, so that it ends after
    the step in progress, with a checkpoint.
    """
    log = folder.with_name(f"{folder.name}.log")
    began = time.monotonic()
    pruned = False
    ended = False
    lines: list[Evaluation] = []
    process = start_child(command, log)
    try:
        while not ended:
            ended = process.poll() is not None or pruned
            before = len(lines)
            with suppress(DataError):  # no metrics.jsonl yet
                # Step 0 is left out: all trials start from the weights that it evaluates.
                lines = [line for line in read_metrics(folder).evals if line["step"]]
            pruned = pruned or any(
                on_evaluation(n, best_of(lines[:n], indicator)) for n in range(before + 1, len(lines) + 1)
            )
            time.sleep(0 if ended else _POLL)
    finally:
        stop_child(process)
    record = read_record(folder)
    minutes = (time.monotonic() - began) / 60
    if status_of(record) == "not_kept":
        return TrialResult("not_kept", str(record.get("reason")), {}, minutes)
    reason = _failure(process.returncode, record, log, bool(lines))
    best = best_of(lines, indicator, record)
    if reason and not pruned:
        return TrialResult("failed", reason, best, minutes)
    # A trial that was to be pruned may just have finished.
    return TrialResult("pruned" if reason else "finished", "", best, minutes)


def _failure(code: int, record: Mapping[str, Any], log: Path, evaluated: bool) -> str:
    """Return why a training that ended with ``code`` and ``run.json`` failed; empty if it finished."""
    status = status_of(record)
    if code < 0:
        hint = ", perhaps by the system for lack of memory" if code == -signal.SIGKILL else ""
        return f"killed by {signal.Signals(-code).name}{hint}"
    if code == 0 and status == "finished":
        return "" if evaluated else "it was never evaluated. Fix: a smaller Global.eval_batch_step"
    if status in ("collapsed", "nonfinite"):
        return f"{status}: {record.get('reason')}"
    return last_error(log) or f"it ended with exit code {code}; see {log.as_posix()}"


STUDY_FILE = "study.db"
_RANDOM_TRIALS = 6  # number of random trials, from which TPE then learns
_UNPRUNED_TRIALS = 3  # so many trials must have finished before others are compared with them
# A trial that is worse than this percentage of the finished trials is pruned. The median would be too strict: pruned
# trials never finish, so the limit rises with each trial.
_KEPT = 75.0
_FIRST_PRUNING = 2  # number of the first evaluation at which a trial may be pruned
# The first is best. A trial that kept nothing has the value 0, so that its settings are not tried again.
_STATES = {
    "finished": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "not_kept": TrialState.COMPLETE,
    "failed": TrialState.FAIL,
}


@dataclass(frozen=True)
class Trial:
    """A trial that has ended: its number, its settings by config key, and its result."""

    number: int
    settings: Mapping[str, Any]
    result: TrialResult


def check_study_file(folder: Path, resume: bool, again: str) -> None:
    """Refuse to begin a study in a folder that has one, and to resume one in a folder without.

    Args:
        folder: the folder of the study.
        resume: whether the study is to be resumed.
        again: the command that resumes it, for a message.

    Raises:
        ConfigError: the folder has a study and ``resume`` is False, or it has none and ``resume`` is True.
    """
    file = folder / STUDY_FILE
    if resume and not file.is_file():
        raise ConfigError(
            f"{file}: nothing can be resumed here. Fix: leave out --resume, or give the study's folder with --out.",
            code="nothing_to_resume",
        )
    if file.is_file() and not resume:
        raise ConfigError(
            f"{file}: there is a study already. Fix: give another folder with --out, or go on with it:\n{again}",
            code="study_exists",
        )


class TuningStudy:
    """The trials of one space and config, in ``FOLDER/study.db``, for both back ends.

    The settings of a trial follow from the seed, its number and the results before it. A trial that is running when
    the study is stopped or killed does not count, and its settings are tried again.

    Args:
        folder: the folder of the study.
        space: the parameters.
        config: the config; its values of the space's keys are the settings of trial 0.
        seed: the seed of the proposals.

    Attributes:
        indicator: the metric to maximise, ``Metric.main_indicator``.
        shipped: the config's own settings.

    Raises:
        ConfigError: the folder has a study of another config or space, or one that cannot be read.
    """

    def __init__(self, folder: Path, space: Space, config: Config, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.indicator = str(config.at("Metric.main_indicator", None) or "acc")
        self._seed = seed
        self.shipped = {parameter.key: config.at(parameter.key) for parameter in space}
        self._distributions = {parameter.key: _distribution(parameter) for parameter in space}
        file = folder / STUDY_FILE
        self.record = _open_record(file)
        setup = {"space": {each.key: each.values for each in space}, "config": config.thaw(), "seed": seed}
        setup = json.loads(json.dumps(setup, default=str))
        before = self.record.user_attrs.get("setup", setup)
        if changed := [name for name, value in setup.items() if value != before[name]]:
            raise ConfigError(
                f"{file}: the study was made with another {' and '.join(changed)}, so new trials cannot be compared "
                f"with its own. Fix: give the same, or begin another study with --out.",
                code="other_study",
            )
        self.record.set_user_attr("setup", setup)
        self._running: dict[int, optuna.Trial] = {}
        if not self.record.trials:
            self.record.enqueue_trial(self.shipped)
        self.put_back()

    def put_back(self) -> None:
        """Fail the running trials, and queue their settings again."""
        for trial in self.record.get_trials(states=(TrialState.RUNNING,)):
            self.record.tell(trial.number, state=TrialState.FAIL)
            self.record.enqueue_trial(trial.params)

    def ask(self) -> tuple[int, dict[str, Any]]:
        """Begin a trial: return its number and its settings, by config key."""
        # Not Optuna's trial number: an interrupted trial also takes a number, and would change the seed.
        seed = self._seed + len(self.trials()) + len(self._running)
        self.record.sampler = optuna.samplers.TPESampler(n_startup_trials=_RANDOM_TRIALS, seed=seed)
        trial = self.record.ask(fixed_distributions=self._distributions)
        self._running[trial.number] = trial
        return trial.number, trial.params

    def report(self, number: int, count: int, evaluation: Evaluation) -> bool:
        """Keep the best of the first ``count`` evaluations of a trial; return True to stop it.

        The config's own settings are never pruned.
        """
        trial = self._running[number]
        trial.report(objective(evaluation, self.indicator), count)
        return trial.params != self.shipped and trial.should_prune()

    def tell(self, number: int, result: TrialResult) -> Trial:
        """End a trial, and return it."""
        trial = self._running.pop(number)
        state = _STATES[result.state]
        trial.set_user_attr("result", asdict(result))
        value = objective(result.best, self.indicator) if state is TrialState.COMPLETE else None
        self.record.tell(trial, value, state)
        return Trial(number, trial.params, result)

    def by_best(self) -> optuna.Study:
        """Return a study in memory of all trials with an evaluation, pruned ones too, for picture and importance."""
        study = optuna.create_study(direction="maximize")
        for trial in self.trials():
            if trial.result.best:
                study.add_trial(
                    optuna.trial.create_trial(
                        params=dict(trial.settings),
                        distributions=self._distributions,
                        value=objective(trial.result.best, self.indicator),
                    )
                )
        return study

    def trials(self) -> list[Trial]:
        """Return the trials that have ended, in the order of ``_STATES``, the best first in each part."""
        ended = [
            Trial(each.number, each.params, TrialResult(**each.user_attrs["result"]))
            for each in self.record.trials
            if "result" in each.user_attrs
        ]
        order = list(_STATES)
        return sorted(
            ended, key=lambda t: (order.index(t.result.state), -objective(t.result.best, self.indicator))
        )


def _open_record(file: Path) -> optuna.Study:
    """Return Optuna's record in ``file``, which is made if it does not exist.

    Raises:
        ConfigError: it cannot be read.
    """
    pruner = optuna.pruners.PercentilePruner(_KEPT, _UNPRUNED_TRIALS, _FIRST_PRUNING)
    try:
        # A function, since characters of a path may have a meaning in a URL.
        storage = optuna.storages.RDBStorage(
            "sqlite://", engine_kwargs={"creator": lambda: sqlite3.connect(file)}
        )
        return optuna.create_study(
            storage=storage, study_name="tune", direction="maximize", pruner=pruner, load_if_exists=True
        )
    except (
        Exception
    ) as error:  # Optuna and SQLite raise any exception for a damaged file, or one of another version
        raise ConfigError(
            f"{file}: Optuna cannot read this study ({end_text(error)}). Fix: begin another one with --out.",
            code="unreadable_file",
        ) from error


def _distribution(parameter: Parameter) -> BaseDistribution:
    if "choices" in parameter.values:
        return CategoricalDistribution(parameter.ends)
    low, high = parameter.ends
    step = parameter.step
    log = bool(parameter.values.get("log"))
    if step is not None:
        high = low + int((high - low) / step + 1e-8) * step
    if all(isinstance(each, int) for each in (low, high, step)):
        return IntDistribution(low, high, log, int(step or 1))
    return FloatDistribution(low, high, log, None if log else step)
