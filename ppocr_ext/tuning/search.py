"""Search for better settings: check the space, run the trials (here or through Ray), write the results."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from matplotlib import pyplot
from tqdm import tqdm

from ppocr_ext.config import Config, plain_copy
from ppocr_ext.config.node import Node, child, dotted, split
from ppocr_ext.config.yaml_io import Replacement, dump
from ppocr_ext.errors import ModelError
from ppocr_ext.host import open_host
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.folder_lock import locked_folder
from ppocr_ext.messages import LOG, command_line
from ppocr_ext.report.page_template import percent, similarity
from ppocr_ext.report.run_folder import METRICS_FILE, RECORD_FILE
from ppocr_ext.run.host_config import import_plugins
from ppocr_ext.run.logs import quiet_host
from ppocr_ext.tuning.space import Space, check_space, space_text
from ppocr_ext.tuning.study import STUDY_FILE, OnEvaluation, TrialResult, TuningStudy, run_trial

RESULTS_FILE = "results.md"
PICTURE_FILE = "parallel.png"
BEST_FILE = "best.yml"
_LEAST_TRIALS = 4  # the importance of keys needs so many trials
_CHANCE = """\
All trials have the same seed. Another seed alone often changes the accuracy by a point or more, so a smaller difference
may be chance. To be sure, train the best and the shipped settings with two or three other values of Global.seed."""


def write_results(study: TuningStudy, config: Config, folder: Path, command: str) -> Path:
    """Write table, picture and best settings into ``folder``, and return the page.

    Args:
        study: a study with at least one trial.
        config: the config of trial 0.
        folder: the folder of the study.
        command: the command that trains with the best settings.
    """
    trials = study.trials()
    accuracies = {trial.number: percent(trial.result.best.get(study.indicator)) for trial in trials}
    shipped = next((accuracies[trial.number] for trial in trials if trial.settings == study.shipped), "–")
    learned = any(trial.result.best.get(study.indicator) for trial in trials)
    summary = (
        f"The best of {len(trials)} trials is trial {trials[0].number}: {study.indicator} "
        f"{accuracies[trials[0].number]} (the shipped settings: {shipped})."
        if learned
        else f"No trial learned anything: {study.indicator} is 0 in all {len(trials)}, so no settings are better than "
        f"others. Fix: longer trials (Global.epoch_num); `ppocr-ext sanity` shows whether the network can learn."
    )
    if not learned and any(trial.result.state == "not_kept" for trial in trials):
        summary = (
            "No trial has weights that may be kept (not_kept below), so no settings are better than others."
        )
    chosen = config.with_values(trials[0].settings)
    sections = Node({section: chosen.node(section) for section in chosen})
    best = _part(sections, [split(key) for key in study.shipped])  # an overlay with only these keys
    write_text(folder / BEST_FILE, f"# {summary}\n# An overlay; train with it: {command}\n{dump(best)}")
    names = short_names(study.shipped)
    if not learned:
        (folder / PICTURE_FILE).unlink(missing_ok=True)  # the picture of an earlier study
        write_text(folder / RESULTS_FILE, f"{summary}\n\n{_table(study, names)}\n")
        return folder / RESULTS_FILE
    _draw(study, names, folder / PICTURE_FILE)
    parts = [
        summary,
        _table(study, names),
        f"![trials]({PICTURE_FILE})",
        _importance(study, names),
        _CHANCE,
        f"Train with the best settings:\n\n```\n{command}\n```\n",
    ]
    write_text(folder / RESULTS_FILE, "\n\n".join(parts))
    return folder / RESULTS_FILE


def _draw(study: TuningStudy, names: Mapping[str, str], file: Path) -> None:
    """Draw parallel coordinates, with an axis for each key and for the metric, and a line for each trial."""
    record = study.by_best()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is experimental, and an axis may have only one value
        axes = optuna.visualization.matplotlib.plot_parallel_coordinate(record, target_name=study.indicator)
    axes.set_xticks(range(1 + len(names)), [study.indicator, *(names[key] for key in sorted(names))])
    axes.set_title(f"{len(record.trials)} trials, each by its best evaluation")
    axes.figure.set_size_inches(3 + 1.8 * len(names), 5)
    axes.figure.savefig(file, dpi=100, bbox_inches="tight")
    pyplot.close(axes.figure)


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the last components of each key, as many as it takes so that no other key ends with them."""
    every = {key: split(key) for key in keys}
    names = {}
    for key, parts in every.items():
        ends = (parts[-count:] for count in range(1, len(parts) + 1))
        alone = (end for end in ends if sum(each[-len(end) :] == end for each in every.values()) == 1)
        names[key] = dotted(next(alone, parts))
    return names


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings in a line."""
    return ", ".join(f"{name} {_plain(settings[key])}" for key, name in short_names(settings).items())


def _plain(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.3g}" if is_number else str(value)


def _table(study: TuningStudy, names: Mapping[str, str]) -> str:
    head = ["trial", *names.values(), study.indicator, "1 - NED", "step", "state", "minutes"]
    rows = [head, ["---"] * len(head)]
    for trial in study.trials():
        result = trial.result
        mark = ", shipped" if trial.settings == study.shipped else ""
        rows.append(
            [
                f"{trial.number}{mark}",
                *(_plain(trial.settings[key]) for key in names),
                percent(result.best.get(study.indicator)),
                similarity(result.best.get("norm_edit_dis")),
                str(result.best.get("step", "–")),
                f"{result.state}: {result.reason}" if result.reason else result.state,
                f"{result.minutes:.1f}",
            ]
        )
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def _importance(study: TuningStudy, names: Mapping[str, str]) -> str:
    """Return which share of the differences each key explains."""
    record = study.by_best()
    if len({trial.value for trial in record.trials}) < _LEAST_TRIALS:
        return f"Importance of the keys: it needs {_LEAST_TRIALS} trials with different results."
    importances = optuna.importance.get_param_importances(
        record, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
    )
    shares = ", ".join(f"{names[key]} {share:.0%}" for key, share in importances.items())
    return f"Importance of the keys (PED-ANOVA, {len(record.trials)} trials; rough below 30): {shares}."


def _part(node: Node, paths: Sequence[tuple[str, ...]]) -> Any:
    """Return the part of ``node`` at ``paths``; a list that a path enters by index is replaced as a whole."""
    if () in paths:
        return plain_copy(node)
    if node.is_list and any(path[0].isdecimal() for path in paths):
        return Replacement(plain_copy(node))
    parts = {
        name: _part(child(node, [name], 0) or Node(None), [path[1:] for path in paths if path[0] == name])
        for name in dict.fromkeys(path[0] for path in paths)
    }
    return [{name: part} for name, part in parts.items()] if node.is_list else parts


@dataclass(frozen=True)
class Search:
    """What a search trains, where, and how often.

    Attributes:
        config: as loaded, with overlays and options; its own values are trial 0.
        files: the files of ``-c``, for the command that trains the best settings.
        folder: folder of the study: its record, its runs (``trials/0003``), its results.
        trials: number of trials in all, those of a resumed study included.
        host_path: a PaddleOCR checkout; None for the installed package.
    """

    config: Config
    files: tuple[str, ...]
    folder: Path
    trials: int
    host_path: str | None = None

    def train(
        self, number: int, settings: Mapping[str, Any], indicator: str, on_evaluation: OnEvaluation
    ) -> TrialResult:
        """Train trial ``number`` with ``ppocr-ext train``, in its own run folder."""
        folder = self.folder / "trials" / f"{number:04}"
        # Files of an earlier study in this folder would count as this trial's.
        for name in (METRICS_FILE, RECORD_FILE):
            (folder / name).unlink(missing_ok=True)
        values = {**settings, "Global.save_model_dir": folder.as_posix()}
        options = [f"{key}={json.dumps(value)}" for key, value in values.items()]  # JSON is YAML
        host = [] if self.host_path is None else ["--host", self.host_path]
        config = (self.folder / "config.yml").as_posix()
        command = ["train", "-c", config, *host, "--overwrite", "-o", *options]
        return run_trial(command, folder, indicator, on_evaluation)

    def end(self, study: TuningStudy, number: int, result: TrialResult) -> None:
        """Keep the result of a trial, and write the results so far.

        Raises:
            ModelError: the trial with the config's own settings failed, and so did all others.
        """
        trial = study.tell(number, result)
        trials = study.trials()
        reason = f": {result.reason}" if result.reason else ""
        if trial.settings == study.shipped and all(each.result.state == "failed" for each in trials):
            (self.folder / STUDY_FILE).unlink()
            command = command_line("train", "-c", self.folder / "config.yml", host=self.host_path)
            raise ModelError(
                f"trial {number}, the config as it is, failed{reason}\nFix: make this command run, then begin again:\n"
                f"{command}",
                code="training_failed",
            )
        name = study.indicator
        own, best = (percent(each.result.best.get(name)) for each in (trial, trials[0]))
        LOG.info(
            "%s",
            f"trial {number}: {settings_text(trial.settings)}: {name} {own}, {result.state}{reason}, "
            f"{result.minutes:.1f} minutes (best: {best}, trial {trials[0].number})",
        )
        files = [word for file in (*self.files, self.folder / BEST_FILE) for word in ("-c", str(file))]
        write_results(study, self.config, self.folder, command_line("train", *files, host=self.host_path))

    def run(self, space: Space, run_trials: RunTrials) -> Path:
        """Run the trials that the study lacks, and return its page of results.

        Args:
            space: the parameters.
            run_trials: the back end: :func:`run_here`, or the one of Ray.

        Raises:
            ConfigError: config, space or an earlier study in the folder cannot be used.
            ModelError: the config cannot be trained as it is.
        """
        host = open_host(self.host_path)
        quiet_host(host.logger)
        import_plugins(self.config)
        check_space(space, self.config, host)
        with locked_folder(self.folder, "--out DIR"):
            study = TuningStudy(self.folder, space, self.config, self.config.settings.seed)
            write_text(self.folder / "config.yml", self.config.to_yaml())
            write_text(self.folder / "space.yml", space_text(space))
            try:
                run_trials(self, study)
            finally:
                study.put_back()
        return self.folder / RESULTS_FILE


RunTrials = Callable[[Search, TuningStudy], None]


def run_here(search: Search, study: TuningStudy) -> None:
    """Run trials one after the other on this machine, with a bar."""
    done = len(study.trials())
    with tqdm(total=search.trials, initial=done, unit="trial", dynamic_ncols=True, disable=None) as bar:
        for _ in range(done, search.trials):
            number, settings = study.ask()
            bar.set_description(f"trial {number}")

            def on_evaluation(count: int, line: Mapping[str, Any], number: int = number) -> bool:
                bar.set_postfix_str(
                    f"evaluation {count}, best {study.indicator} {percent(line.get(study.indicator))}"
                )
                return study.report(number, count, line)

            search.end(study, number, search.train(number, settings, study.indicator, on_evaluation))
            bar.update(1)
