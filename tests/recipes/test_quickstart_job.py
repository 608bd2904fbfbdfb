"""The student of the quickstart beside its teacher: a process that is waited for, stopped, and believed if it fails."""

from __future__ import annotations

import subprocess
import sys

import pytest
from error_codes import raises_code

from ppocr_ext.errors import ModelError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.recipes import quickstart_job
from ppocr_ext.recipes.quickstart_job import QuickstartOptions, _student_beside

BOTH = ["teacher", "student", "distilled"]
LASTS = "import sys; sys.stdin.read()"  # until it is stopped


@pytest.fixture
def started(monkeypatch):
    """Processes that were started in place of the student, whose code is the key ``code``."""
    processes: dict = {"code": LASTS, "all": [], "words": []}

    def start_child(words, log):
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", processes["code"]], stdin=subprocess.PIPE, stdout=output
            )
        processes["all"].append(process)
        processes["words"].append(words)
        return process

    monkeypatch.setattr(quickstart_job, "start_child", start_child)
    monkeypatch.setattr(quickstart_job, "usable_cores", lambda: 2)
    return processes


def beside(folder, stages=BOTH):
    return _student_beside(stages, folder, QuickstartOptions("captcha/32x96", 3, 5), None)


def test_the_student_trains_with_the_same_options_and_is_waited_for(started, tmp_path):
    started["code"] = "print('done')"
    with beside(tmp_path) as wait:
        wait()
        assert started["all"][0].returncode == 0
    options = ["--preset", "captcha/32x96", "--minutes", "3", "--seed", "5"]
    assert started["words"] == [["quickstart", "--out", str(tmp_path), *options, "--stages", "student"]]


def test_it_stops_with_the_quickstart(started, tmp_path):
    with pytest.raises(KeyboardInterrupt), beside(tmp_path):
        raise KeyboardInterrupt
    assert started["all"][0].returncode is not None


def test_its_error_is_that_of_the_quickstart(started, tmp_path):
    started["code"] = "print('error: the disk is full'); raise SystemExit(2)"
    with beside(tmp_path) as wait, raises_code(ModelError, "training_failed", "the disk is full"):
        wait()


def test_it_is_not_started_on_one_core_or_when_one_of_both_is_finished_or_not_asked_for(
    started, tmp_path, monkeypatch
):
    with beside(tmp_path, ["teacher"]) as wait:
        wait()
    (tmp_path / "teacher").mkdir()
    write_text(tmp_path / "teacher" / "run.json", '{"status": "finished"}')
    with beside(tmp_path) as wait:
        wait()
    monkeypatch.setattr(quickstart_job, "usable_cores", lambda: 1)
    with beside(tmp_path / "other") as wait:
        wait()
    assert started["all"] == []
