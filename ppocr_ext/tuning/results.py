"""What a study found: a table, a picture with one line per trial, and the best settings as an overlay."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from matplotlib import pyplot

from ppocr_ext.config import Config, plain_copy
from ppocr_ext.config.node import Node, child, dotted, split
from ppocr_ext.config.yaml_io import Replacement, dump
from ppocr_ext.io.atomic import write_text
from ppocr_ext.report.formats import percent, similarity
from ppocr_ext.tuning.study import TuningStudy

RESULTS_FILE, PICTURE_FILE, BEST_FILE = "results.md", "parallel.png", "best.yml"
_LEAST_TRIALS = 4  # for the importance of keys
_CHANCE = """\
All trials have one seed. Another seed alone often moves the accuracy by a point or more: a smaller difference is no
improvement. To be sure, train the best and the shipped settings with two or three other values of Global.seed."""


def write_results(study: TuningStudy, config: Config, folder: Path, command: str) -> Path:
    """Write table, picture and best settings into ``folder``, and return the page.

    Args:
        study: with at least one trial.
        config: the config of trial 0.
        folder: of the study.
        command: trains with the best settings.
    """
    trials = study.trials()
    accuracies = {trial.number: percent(trial.result.best.get(study.indicator)) for trial in trials}
    shipped = next((accuracies[trial.number] for trial in trials if trial.settings == study.shipped), "–")
    summary = (
        f"The best of {len(trials)} trials is trial {trials[0].number}: {study.indicator} "
        f"{accuracies[trials[0].number]} (the shipped settings: {shipped})."
    )
    chosen = config.with_values(trials[0].settings)
    sections = Node({section: chosen.node(section) for section in chosen})
    best = _part(sections, [split(key) for key in study.shipped])  # an overlay with only these keys
    write_text(folder / BEST_FILE, f"# {summary}\n# An overlay; train with it: {command}\n{dump(best)}")
    names = short_names(study.shipped)
    _draw(study, names, folder / PICTURE_FILE)
    importance = _importance(study, names)
    fenced = f"Train with the best settings:\n\n```\n{command}\n```\n"
    parts = [summary, _table(study, names), f"![trials]({PICTURE_FILE})", importance, _CHANCE, fenced]
    write_text(folder / RESULTS_FILE, "\n\n".join(parts))
    return folder / RESULTS_FILE


def _draw(study: TuningStudy, names: Mapping[str, str], file: Path) -> None:
    """Draw parallel coordinates: an axis for each key and one for the metric, a line for each trial."""
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
    """Return for each key its last components, as many as tell it from the other keys."""
    every = {key: split(key) for key in keys}
    names = {}
    for key, parts in every.items():
        ends = [parts[-count:] for count in range(1, len(parts) + 1)]
        alone = [end for end in ends if sum(each[-len(end) :] == end for each in every.values()) == 1]
        names[key] = dotted(alone[0] if alone else parts)
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
        result, mark = trial.result, ", shipped" if trial.settings == study.shipped else ""
        numbers = [percent(result.best.get(study.indicator)), similarity(result.best.get("norm_edit_dis"))]
        numbers.append(str(result.best.get("step", "–")))
        state = f"{result.state}: {result.reason}" if result.reason else result.state
        settings = [_plain(trial.settings[key]) for key in names]
        rows.append([f"{trial.number}{mark}", *settings, *numbers, state, f"{result.minutes:.1f}"])
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def _importance(study: TuningStudy, names: Mapping[str, str]) -> str:
    """Return how much of the differences each key explains."""
    record = study.by_best()
    if len({trial.value for trial in record.trials}) < _LEAST_TRIALS:
        return f"Importance of the keys: it needs {_LEAST_TRIALS} trials with different results."
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(record, evaluator=evaluator)
    shares = ", ".join(f"{names[key]} {share:.0%}" for key, share in found.items())
    return f"Importance of the keys (PED-ANOVA, {len(record.trials)} trials; rough below 30): {shares}."


def _part(node: Node, paths: Sequence[tuple[str, ...]]) -> Any:
    """Return the part of ``node`` that ``paths`` reach; a list that one enters by number is replaced as a whole."""
    if () in paths:
        return plain_copy(node)
    if node.is_list and any(path[0].isdecimal() for path in paths):
        return Replacement(plain_copy(node))
    names = dict.fromkeys(path[0] for path in paths)
    found = {
        name: _part(child(node, [name], 0) or Node(None), [p[1:] for p in paths if p[0] == name])
        for name in names
    }
    return [{name: value} for name, value in found.items()] if node.is_list else found
