"""The record of a study: proposals, pruning, what survives a kill, and the files of results; no training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from error_codes import raises_code

pytest.importorskip("optuna")

from ppocr_ext.config import Config, load  # noqa: E402
from ppocr_ext.errors import ConfigError  # noqa: E402
from ppocr_ext.io.resources import config_path  # noqa: E402
from ppocr_ext.tuning.search import write_results  # noqa: E402
from ppocr_ext.tuning.space import Parameter, default_space  # noqa: E402
from ppocr_ext.tuning.study import TrialResult, TuningStudy, check_study_file, objective  # noqa: E402  # noqa: E402

CONFIG = load([config_path("quickstart/distill.yml")])
SPACE = default_space(CONFIG)


def opened(folder: Path, config: Config = CONFIG, space: Any = SPACE) -> TuningStudy:
    folder.mkdir(exist_ok=True)
    return TuningStudy(folder, space, config, seed=5)


def finished(accuracy: float) -> TrialResult:
    return TrialResult("finished", "", {"acc": accuracy, "norm_edit_dis": accuracy}, 1.0)


def run(study: TuningStudy, count: int) -> list[dict[str, Any]]:
    """Settings of ``count`` trials whose accuracy follows from their learning rate."""
    proposed = []
    for _ in range(count):
        number, settings = study.ask()
        proposed.append(settings)
        study.tell(number, finished(settings["Optimizer.lr.learning_rate"] * 10))
    return proposed


def test_whole_numbers_and_steps_are_proposed_as_such(tmp_path: Path) -> None:
    space = [
        Parameter("Global.epoch_num", {"low": 1, "high": 30}),
        Parameter("Train.loader.batch_size_per_card", {"low": 16, "high": 70, "step": 16}),
        Parameter("Optimizer.clip_norm_global", {"low": 1.0, "high": 9.0, "step": 0.5}),
    ]
    for settings in run_any(opened(tmp_path, space=space), 8):
        assert all(each.holds(settings[each.key]) for each in space), settings
        assert isinstance(settings["Global.epoch_num"], int)


def run_any(study: TuningStudy, count: int) -> list[dict[str, Any]]:
    proposed = []
    for _ in range(count):
        number, settings = study.ask()
        study.tell(number, finished(0.5))
        proposed.append(settings)
    return proposed


def test_the_same_seed_proposes_the_same_also_through_a_kill(tmp_path: Path) -> None:
    whole = run(opened(tmp_path / "whole"), 9)
    assert whole[0] == {parameter.key: CONFIG.at(parameter.key) for parameter in SPACE}  # the config's own
    assert all(parameter.holds(settings[parameter.key]) for settings in whole for parameter in SPACE)
    assert len({str(settings) for settings in whole}) == 9
    study = opened(tmp_path / "killed")
    before = run(study, 4)
    _, interrupted = study.ask()
    del study  # without a result, as by a kill
    study = opened(tmp_path / "killed")
    assert len(study.trials()) == 4
    after = run(study, 5)
    assert after[0] == interrupted
    assert before + after == whole
    assert len(study.trials()) == 9


def test_a_trial_behind_the_others_is_pruned_but_not_the_shipped_one(tmp_path: Path) -> None:
    study = opened(tmp_path)
    for accuracy in (0.6, 0.7, 0.8):
        number, _ = study.ask()
        assert not any(study.report(number, count, {"acc": accuracy}) for count in (1, 2, 3))
        study.tell(number, finished(accuracy))
    number, _ = study.ask()
    assert not study.report(number, 1, {"acc": 0.1})  # the first evaluation is too early
    assert study.report(number, 2, {"acc": 0.2})
    study.tell(number, TrialResult("pruned", "", {"acc": 0.2}, 0.5))
    study.record.enqueue_trial(study.shipped)
    number, _ = study.ask()
    assert not any(study.report(number, count, {"acc": 0.1}) for count in (1, 2, 3))
    assert [trial.number for trial in study.trials()] == [2, 1, 0, 3]


def test_edit_distance_decides_between_equal_accuracies_alone() -> None:
    values = [(0.0, 0.3), (0.0, 0.4), (0.001, 0.2), (0.5, 0.9), (0.501, 0.8)]
    measured = [objective({"acc": acc, "norm_edit_dis": ned}, "acc") for acc, ned in values]
    assert measured == sorted(measured) and len(set(measured)) == 5
    assert objective({"acc": None}, "acc") == objective({}, "acc") == 0  # NaN is null in metrics.jsonl


def test_a_study_is_neither_replaced_nor_mixed(tmp_path: Path) -> None:
    with raises_code(ConfigError, "nothing_to_resume", tmp_path):
        check_study_file(tmp_path, True, "again")
    run(opened(tmp_path), 1)
    with raises_code(ConfigError, "study_exists", "the command"):
        check_study_file(tmp_path, False, "the command")
    with raises_code(ConfigError, "other_study", "space"):
        opened(tmp_path, space=SPACE[:1])
    with raises_code(ConfigError, "other_study", "config"):
        opened(tmp_path, CONFIG.with_values({"Global.epoch_num": 7}))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("no database" * 100)
    with raises_code(ConfigError, "unreadable_file", "study.db", "--out"):
        opened(tmp_path)


def test_the_results_of_a_study(tmp_path: Path) -> None:
    folder = tmp_path / "50% of #1?"  # what a URL would read otherwise
    study = opened(folder)
    run(study, 6)
    number, _ = study.ask()
    study.tell(number, TrialResult("failed", "killed by SIGKILL | twice", {}, 0.1))
    number, _ = study.ask()
    study.tell(number, TrialResult("pruned", "", {"acc": 0.01, "norm_edit_dis": 0.1}, 0.1))
    number, _ = study.ask()
    study.tell(number, TrialResult("not_kept", "all lose too much", {}, 0.1))
    page = write_results(study, CONFIG, folder, "ppocr-ext train").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert len({len(row) for row in rows}) == 1 and len(rows) == 2 + 9
    best = study.trials()[0]
    assert rows[2][0] == f"| {best.number}" and rows[-1][0] == "| 6"
    assert rows[-2][0] == "| 8" and rows[-2][-2] == "not_kept: all lose too much"
    assert sum("shipped" in row[0] for row in rows) == 1
    assert "learning_rate" in page and "%" in page.partition("Importance")[2]
    assert (folder / "parallel.png").read_bytes().startswith(b"\x89PNG")
    laid_over = load([config_path("quickstart/distill.yml"), folder / "best.yml"])
    assert laid_over == CONFIG.with_values(best.settings)


def test_a_study_in_which_nothing_was_learned_names_no_best_settings(tmp_path: Path) -> None:
    study = opened(tmp_path)
    number, _ = study.ask()
    study.tell(number, TrialResult("not_kept", "all lose too much", {}, 1.0))
    page = write_results(study, CONFIG, tmp_path, "ppocr-ext train").read_text(encoding="utf-8")
    assert page.startswith("No trial has weights that may be kept")
    study = opened(tmp_path / "other")
    for similarity in (0.0, 1e-4):
        number, _ = study.ask()
        study.tell(number, TrialResult("finished", "", {"acc": 0.0, "norm_edit_dis": similarity}, 1.0))
    page = write_results(study, CONFIG, tmp_path, "ppocr-ext train").read_text(encoding="utf-8")
    assert page.startswith("No trial learned anything: acc is 0 in all 2") and "ppocr-ext train" not in page
    assert not (tmp_path / "parallel.png").exists()
    assert "No trial learned anything" in (tmp_path / "best.yml").read_text(encoding="utf-8")
    run(study, 1)
    assert "best settings" in write_results(study, CONFIG, tmp_path, "train").read_text(encoding="utf-8")


def test_an_overlay_reaches_lists_by_name_and_by_number(tmp_path: Path) -> None:
    entries = [{"DKD": {"weight": 1.0}}, {"CTC": {"weight": 1.0}}, {"DKD": {"weight": 2.0, "head": "gtc"}}]
    base = {"Loss": {"loss_config_list": entries, "sizes": [3, 4], "factor": 1.0}, "Global": {"a": 1}}
    config = Config(base)
    (tmp_path / "base.yml").write_text(config.to_yaml())
    keys = ("Loss.loss_config_list.2.DKD.weight", "Loss.sizes.1", "Loss.factor")
    space = [Parameter(key, {"low": 0.5, "high": 9.5}) for key in keys]
    study = opened(tmp_path, config, space)
    run_any(study, 2)
    number, settings = study.ask()
    study.tell(number, finished(0.9))
    write_results(study, config, tmp_path, "train")
    assert load([tmp_path / "base.yml", tmp_path / "best.yml"]) == config.with_values(settings)
