"""Runs of experiments: what continues, what an error and Ctrl-C leave, and several runs at a time."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from error_codes import raises_code
from experiments import runs, use_it
from experiments.runs import RunFailedError, RunStopped, Training, choose_images, command, side_by_side
from waiting import HANG


def test_a_finished_run_is_not_trained_again(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(runs, "command", lambda name, arguments, log, threads: called.append(arguments))
    run = Training(tmp_path / "run", (Path("a.yml"),), {"Global.seed": 1})
    runs.train(run)
    assert called[-1] == [
        "-c", "a.yml", "-o", "Global.seed=1", f'Global.save_model_dir="{tmp_path / "run"}"', "--overwrite"
    ]  # fmt: skip
    run.folder.mkdir()
    run.latest.with_suffix(".pdparams").write_bytes(b"")
    runs.train(run)
    assert called[-1][-1] == f"Global.checkpoints={run.latest}"
    (run.folder / "run.json").write_text('{"status": "finished"}')
    runs.train(run)
    assert len(called) == 2


def test_images_are_chosen_with_the_files_of_their_text(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for number in range(9):
        (data / f"{number}.png").write_bytes(b"image")
        (data / f"{number}.gt.txt").write_text(str(number))
    chosen = [choose_images(data, tmp_path / f"of{seed}", 4, seed) for seed in (1, 1, 2)]
    names = [sorted(each.name for each in folder.iterdir()) for folder in chosen]
    assert names[0] == names[1] != names[2]
    assert [name[1:] for name in names[0]] == 4 * [".gt.txt", ".png"]
    assert len({name[0] for name in names[0]}) == 4


def test_a_command_that_fails_says_what_it_said(tmp_path):
    shown = f"ppocr-ext train -c '{tmp_path}/missing file.yml'\n"
    with raises_code(RunFailedError, "run_failed", shown):
        command("train", ["-c", str(tmp_path / "missing file.yml")], tmp_path / "logs" / "run.log")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (130, RunStopped), (143, RunStopped), (-2, RunStopped), (-15, RunStopped),
        (-9, RunFailedError), (137, RunFailedError), (-11, RunFailedError), (1, RunFailedError),
    ],
)  # fmt: skip
def test_a_stop_is_no_failure_and_a_kill_is(tmp_path, monkeypatch, code, error):
    monkeypatch.setattr(runs, "exit_code", lambda *args: code)
    with pytest.raises(error):
        command("train", [], tmp_path / "run.log")


def test_an_error_is_raised_rather_than_that_another_run_was_stopped(caplog):
    has_failed = threading.Event()

    def stopped():
        has_failed.wait(HANG)
        raise RunStopped

    def failed():
        has_failed.set()
        raise RunFailedError("the disk is full", code="disk_full")

    with raises_code(RunFailedError, "disk_full"):
        side_by_side([stopped, failed], 2)
    assert "the disk is full" in caplog.text


CHILD = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.6), pathlib.Path(sys.argv[1]).write_text("saved"), sys.exit(130)))
print(os.getpid(), flush=True)
time.sleep(900)
"""


def test_ctrl_c_waits_until_a_run_is_saved(tmp_path):
    log, saved = tmp_path / "log", tmp_path / "saved"

    def interrupt():
        while not log.read_text().endswith("\n"):
            time.sleep(0.02)
        os.kill(int(log.read_text()), signal.SIGINT)  # a terminal sends it to both
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    log.touch()
    threading.Thread(target=interrupt).start()
    with log.open("w") as stream, pytest.raises(KeyboardInterrupt):
        runs.exit_code([sys.executable, "-c", CHILD, str(saved)], stream, os.environ)
    assert saved.read_text() == "saved"


def test_after_ctrl_c_no_job_begins_and_those_that_run_come_to_their_end():
    begun, ended = [], []

    def job(number):
        begun.append(number)
        if number == 0:
            time.sleep(0.2)  # until all are submitted
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.2)
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        side_by_side([partial(job, number) for number in range(5)], 1)
    assert begun == ended == [0]


def test_a_finished_command_is_not_run_again_and_an_interrupted_training_begins_anew(tmp_path, monkeypatch):
    codes = iter([0, 1, 0])
    called = []

    def run(call, **_):
        called.append(call[3:])
        return subprocess.CompletedProcess(call, next(codes))

    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(2):
        use_it.run_command(tmp_path, "init", ["init", "data"])
    with raises_code(RunFailedError, "run_failed"):
        use_it.run_command(tmp_path, "train", ["train", "-o", "A=1"])
    use_it.run_command(tmp_path, "train", ["train", "-o", "A=1"])
    assert called == [["init", "data"], ["train", "-o", "A=1"], ["train", "-o", "A=1", "--overwrite"]]
