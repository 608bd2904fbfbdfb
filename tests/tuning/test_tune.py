"""The command: tiny trials, one that dies, a study that is killed and resumed, Ctrl-C, and trials through Ray."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from error_codes import raises_code
from tiny_runs import captchas, tiny, tiny_config  # noqa: F401
from waiting import wait_for

pytest.importorskip("optuna")

from ppocr_ext.cli.main import main  # noqa: E402
from ppocr_ext.config import load  # noqa: E402
from ppocr_ext.errors import ModelError  # noqa: E402
from ppocr_ext.io.atomic import is_running  # noqa: E402
from ppocr_ext.loop.session import train  # noqa: E402
from ppocr_ext.tuning import search as search_module  # noqa: E402
from ppocr_ext.tuning.search import Search  # noqa: E402
from ppocr_ext.tuning.space import read_space  # noqa: E402
from ppocr_ext.tuning.study import (  # noqa: E402
    TrialResult,
    TuningStudy,  # noqa: E402
    run_trial,
)

ROOT = Path(__file__).resolve().parents[2]
SPACE = """
Optimizer.lr.learning_rate: {low: 0.001, high: 0.01, log: true}
Optimizer.weight_decay: {choices: [0.05, 0.2]}
"""
# a plugin: one of the weight decays kills its process, and trial 1 waits as long as there is a file `hold`
DYING = """
import os, sys, time
from pathlib import Path

if Path("hold").exists() and "trials/0001" in " ".join(sys.argv):
    Path("held").write_text(str(os.getpid()))
    time.sleep(1800)
if "Optimizer.weight_decay=0.2" in sys.argv:
    os.kill(os.getpid(), 9)
"""
# what a tiny run can do without
FAST = {
    "Global.dry_step": False,
    "Global.epoch_num": 1,
    "Eval.loader.num_workers": 0,
    "Global.print_batch_step": 9,
}


def words(folder: Path, *more: str) -> list[str]:
    return [
        "tune",
        "-c",
        str(folder / "my.yml"),
        "--space",
        str(folder / "space.yml"),
        "--out",
        "study",
        *more,
    ]


@pytest.fixture
def folder(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A config, a space and a plugin, in the current folder."""
    config = tiny("student", **FAST, **{"Global.plugins": ["dying_of_a_setting"]})
    (tmp_path / "my.yml").write_text(config.to_yaml(), encoding="utf-8")
    (tmp_path / "space.yml").write_text(SPACE, encoding="utf-8")
    (tmp_path / "dying_of_a_setting.py").write_text(DYING, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.e2e
def test_a_study_with_a_trial_that_dies_is_killed_and_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "hold").touch()
    command = [sys.executable, str(ROOT / "tools" / "tune.py"), *words(folder, "--trials", "4")[1:]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        wait_for(lambda: (folder / "held").is_file() and (folder / "held").read_text())
        process.kill()
    wait_for(lambda: not is_running(int((folder / "held").read_text())))  # no trial outlives its study
    (folder / "hold").unlink()
    assert main(words(folder, "--trials", "4")) == 2  # not without --resume
    assert "[study_exists]" in capsys.readouterr().err

    assert main(words(folder, "--trials", "4", "--resume")) == 0
    page = capsys.readouterr().out
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 4
    states = {row[2]: row[-2] for row in rows}
    assert set(states) == {"0.05", "0.2"}, "choose another seed"
    assert all(("SIGKILL" in row[-2]) == (row[2] == "0.2") for row in rows)
    assert {row[0] for row in rows} > {"| 0, shipped"} and "| 1" not in {row[0] for row in rows}
    best = json.loads((folder / "study" / "trials" / "0000" / "run.json").read_text())
    assert best["status"] == "finished"
    laid_over = load([folder / "my.yml", folder / "study" / "best.yml"])
    assert f"{laid_over.at('Optimizer.lr.learning_rate'):.3g}" == rows[0][1]
    # runs of two steps may all read nothing, and then there are no settings to compare
    assert (folder / "study" / "parallel.png").is_file() is ("No trial learned" not in page)


@pytest.mark.e2e
def test_a_pruned_trial_stops_with_a_checkpoint(captchas: Path, tmp_path: Path) -> None:  # noqa: F811
    train(tiny_config(captchas, tmp_path / "first", "student", **FAST))
    changes = {**FAST, "Global.epoch_num": 500, "Global.eval_batch_step": [0, 1]}
    # which are evaluated as step 0, no result of the trial
    changes["Global.pretrained_model"] = str(tmp_path / "first" / "run" / "latest")
    (tmp_path / "my.yml").write_text(tiny_config(captchas, tmp_path, "student", **changes).to_yaml())
    seen = []

    def stop_at_the_second(count: int, line: Any) -> bool:
        seen.append((count, line["step"]))
        return count == 2

    result = run_trial(["train", "-c", str(tmp_path / "my.yml")], tmp_path / "run", "acc", stop_at_the_second)
    assert (result.state, result.reason) == ("pruned", "")
    assert seen == [(1, 1), (2, 2)]
    assert "norm_edit_dis" in result.best
    assert (tmp_path / "run" / "latest.pdparams").is_file()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "stopped" and record["global_step"] < 1000


@pytest.mark.parametrize(
    ("record", "said", "reason"),
    [
        ({"status": "nonfinite", "reason": "the loss is NaN"}, "", "nonfinite: the loss is NaN"),
        (
            {},
            "words\nerror: my.yml: no such thing [missing_file]\nmore\n",
            "my.yml: no such thing [missing_file]",
        ),
        ({}, "", "exit code 2"),
    ],
)
def test_a_failed_trial_has_its_reason(tmp_path: Path, record: Any, said: str, reason: str) -> None:
    """A command that fails at once, and the files of a run that failed later."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(record))

    def replace_log(seconds: float) -> None:
        (tmp_path / "run.log").write_text(said)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ppocr_ext.tuning.study.time.sleep", replace_log)
        result = run_trial(["train"], folder, "acc", lambda count, line: False)
    assert result.state == "failed" and reason in result.reason


@pytest.mark.parametrize(
    ("record", "state", "accuracy"),
    [
        ({"status": "finished", "best": {"acc": 0.9}}, "finished", 0.9),
        ({"status": "finished", "best": {"acc": 0.85, "share": 0.5}}, "finished", 0.85),
        ({"status": "not_kept", "reason": "all lose too much", "best": {"acc": 0.2}}, "not_kept", None),
    ],
)
def test_a_trial_counts_by_the_weights_that_its_run_chose(
    tmp_path: Path, record: Any, state: str, accuracy: Any
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(record))
    read = [(0, 0.2, True), (2, 0.9, True), (4, 0.95, False)]  # the general list refused the last
    lines = [
        {"kind": "eval", "step": step, "acc": acc, "general_acc": 0.8, "is_best": is_best}
        for step, acc, is_best in read
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    seen: list[Any] = []
    result = run_trial(["--version"], folder, "acc", lambda count, best: seen.append((count, best["acc"])))
    assert (result.state, result.best.get("acc")) == (state, accuracy)
    assert result.reason == record.get("reason", "") and seen == [(1, 0.9), (2, 0.9)]


def test_a_config_that_cannot_be_trained_ends_the_study(folder: Path) -> None:
    config = load([folder / "my.yml"])
    search = Search(config, ("my.yml",), folder / "study", 4)
    failed = TrialResult("failed", "no images", {}, 0.1)

    def run_trials(search: Search, study: TuningStudy) -> None:
        number, _ = study.ask()
        search.end(study, number, failed)

    with raises_code(ModelError, "training_failed", "no images", "study/config.yml"):
        search.run(read_space(folder / "space.yml", config), run_trials)
    assert not (folder / "study" / "study.db").exists()  # so that the mended config can begin


def test_records_of_an_earlier_study_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study that trial 0 has ended begins again in the same folder."""
    old = folder / "study" / "trials" / "0000"
    old.mkdir(parents=True)
    (old / "run.json").write_text(json.dumps({"status": "nonfinite", "reason": "the loss was NaN"}))
    (old / "metrics.jsonl").write_text(json.dumps({"kind": "eval", "step": 5, "acc": 0.9}) + "\n")
    monkeypatch.setattr("ppocr_ext.tuning.study.time.sleep", lambda seconds: None)
    seen = []
    search = Search(load([folder / "my.yml"]), ("my.yml",), folder / "study", 1)
    result = search.train(0, {}, "acc", lambda count, line: bool(seen.append(line)))  # there is no config.yml
    assert result.state == "failed" and "config.yml" in result.reason
    assert not seen and not result.best


def test_another_trial_that_fails_first_ends_nothing(folder: Path) -> None:
    """Of several trials at once, any may fail before the one with the config's own settings has ended."""
    config = load([folder / "my.yml"])
    search = Search(config, ("my.yml",), folder / "study", 2)

    def run_trials(search: Search, study: TuningStudy) -> None:
        (first, _), (second, _) = study.ask(), study.ask()
        search.end(study, second, TrialResult("failed", "no memory", {}, 0.1))
        search.end(study, first, TrialResult("finished", "", {"acc": 0.5}, 0.1))

    page = search.run(read_space(folder / "space.yml", config), run_trials).read_text(encoding="utf-8")
    assert "no memory" in page and "trial 0: acc 50" in page


def test_ctrl_c_keeps_the_study_and_prints_what_resumes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def interrupted(search: Search, study: TuningStudy) -> None:
        asked.append(study.ask()[1])
        raise KeyboardInterrupt

    monkeypatch.setattr(search_module, "run_here", interrupted)
    assert main(words(folder)) == 128 + signal.SIGINT
    command = capsys.readouterr().out.strip().rpartition(": ")[2]
    assert main(shlex.split(command)[1:]) == 128 + signal.SIGINT
    assert asked[0] == asked[1] == {"Optimizer.lr.learning_rate": 0.005, "Optimizer.weight_decay": 0.05}


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (["--trials", "0"], "--trials"),
        (["--ray", "--at-once", "0"], "--at-once"),
        (["--at-once", "2"], "--ray"),
        (["--resume"], "--resume"),
    ],
)
def test_bad_options_are_refused(
    folder: Path, options: list[str], fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(folder, *options)) == 2
    assert fact in capsys.readouterr().err
    assert not (folder / "study").exists()


def test_the_space_is_printed_as_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "-c", "my.yml", "--print-space"]) == 0
    (folder / "printed.yml").write_text(capsys.readouterr().out)
    space = read_space(folder / "printed.yml", load([folder / "my.yml"]))
    assert "Optimizer.lr.learning_rate" in [parameter.key for parameter in space]


@pytest.mark.parametrize("package", ["optuna", "ray"])
def test_a_missing_package_is_named_with_its_extra(
    folder: Path, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("ppocr_ext.tuning.", package))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(words(folder, *(["--ray"] if package == "ray" else []))) == 2
    extra = "tune" if package == "optuna" else "tune-ray"
    assert f"pip install 'ppocr-ext[{extra}]'" in capsys.readouterr().err


@pytest.mark.e2e
def test_ray_runs_the_same_trials(folder: Path) -> None:
    pytest.importorskip("ray")
    assert main(words(folder, "--trials", "3", "--ray")) == 0
    page = (folder / "study" / "results.md").read_text(encoding="utf-8")  # Ray prints tables of its own
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][2:]
    assert sorted(row[0] for row in rows) == ["| 0, shipped", "| 1", "| 2"]
    assert all(("SIGKILL" in row[-2]) == (row[2] == "0.2") for row in rows)
    assert Path.cwd() == folder
