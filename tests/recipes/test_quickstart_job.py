"""The student of the quickstart beside its teacher: a process that is waited for, stopped, and believed if it fails."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from error_codes import raises_code

from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.io.resources import config_path
from ppocr_ext.recipes import quickstart_job
from ppocr_ext.recipes.quickstart_job import QuickstartOptions, StopSignal, _student_beside

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
    assert started["words"] == [["train", "-c", str(tmp_path / "student.yml"), "--overwrite"]]
    config = load([tmp_path / "student.yml"])
    assert (config.at("Global.seed"), config.at("Global.save_model_dir")) == (5, str(tmp_path / "student"))


def test_a_student_that_has_begun_goes_on(started, tmp_path):
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "latest.pdparams").touch()
    with beside(tmp_path):
        pass
    assert started["words"] == [["train", "-c", str(tmp_path / "student.yml")]]
    config = load([tmp_path / "student.yml"])
    assert config.at("Global.checkpoints") == str(tmp_path / "student" / "latest")


def test_it_stops_with_the_quickstart(started, tmp_path):
    with pytest.raises(KeyboardInterrupt), beside(tmp_path):
        raise KeyboardInterrupt
    assert started["all"][0].returncode is not None


def test_if_its_process_fails_the_stage_is_still_to_be_trained(started, tmp_path, caplog):
    started["code"] = "print('error: the disk is full'); raise SystemExit(2)"
    with beside(tmp_path) as wait:
        wait()
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize(("raised", "number"), [((), signal.SIGINT), ((signal.SIGTERM,), signal.SIGTERM)])
def test_a_signal_while_waiting_stops_the_quickstart(started, tmp_path, monkeypatch, raised, number):
    def interrupted(self, timeout=None):
        monkeypatch.undo()
        raise KeyboardInterrupt(*raised)

    with pytest.raises(StopSignal) as stop, beside(tmp_path) as wait:
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
        wait()
    assert stop.value.args == (number,)
    assert started["all"][0].returncode is not None


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


def test_the_students_have_few_labels_and_as_many_steps_as_the_teacher(tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart_job, "TEST_IMAGES", 3)
    options = QuickstartOptions()
    quickstart_job._make_data(tmp_path, options, 1)
    images, steps = {}, set()
    for stage in BOTH:
        config = quickstart_job.stage_config(stage, tmp_path, options)
        files = config.at("Train.dataset").get("label_file_list") or ()
        lines = [line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
        images[stage] = set(lines)
        count = len(lines) or config.at("Train.dataset.size")
        steps.add(count // config.at("Train.loader.batch_size_per_card"))
    assert steps == {62} and images["teacher"] == set()
    assert images["student"] == images["distilled"] and len(images["student"]) == 250
    (mixed,) = config.at("Train.mix")  # of the distillation
    assert mixed["dataset"]["name"] == "CaptchaDataSet" and (mixed["share"], mixed["labelled"]) == (
        0.75,
        False,
    )


@pytest.mark.parametrize("preset", ["quickstart", "captcha/32x128", "captcha/32x96", "captcha/62classes"])
def test_table_and_distillation_are_of_the_checkpoint_that_predict_and_export_take(
    tmp_path, monkeypatch, preset
):
    class SeenError(Exception):
        pass

    def build(config, *args, **kwargs):
        raise SeenError(config.at("Global.checkpoints"))

    monkeypatch.setattr(quickstart_job.Run, "build", build)
    options = QuickstartOptions(preset)
    with pytest.raises(SeenError, match=f"{tmp_path}/student/best_accuracy"):
        quickstart_job._evaluate_stage("student", tmp_path, options, None)
    distill, key = (
        quickstart_job.stage_config("distilled", tmp_path, options),
        "Architecture.Models.Teacher.pretrained",
    )
    assert distill.at(key) == f"{tmp_path}/teacher/best_accuracy"
    assert load([config_path(f"{preset}/distill.yml")]).at(key).endswith("/teacher/best_accuracy")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    write_text(tmp_path / "results.md", "mine")
    with raises_code(ConfigError, "folder_not_empty"):
        quickstart_job.run_quickstart(tmp_path, QuickstartOptions(), 1, ("student",), None)
    assert [file.name for file in tmp_path.iterdir()] == ["results.md"]
