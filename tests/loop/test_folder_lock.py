"""A run folder belongs to one training, and a run in it is replaced only on request."""

import errno
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys

import pytest
from error_codes import raises_code

from ppocr_ext.config import Config
from ppocr_ext.errors import ConfigError
from ppocr_ext.loop.folder_lock import check_folder, locked_folder

HOLDER = """
import os, sys, time
from pathlib import Path
from ppocr_ext.loop.folder_lock import locked_folder
with locked_folder(Path(sys.argv[1])):
    said, say = os.pipe()
    worker = os.fork()
    if worker == 0:
        file = os.open(os.devnull, os.O_RDONLY)  # gets the number that the lock had
        other = os.fork()
        if other == 0:
            os.fstat(file)
            os._exit(0)
        os.write(say, b"closed by a fork" if os.waitpid(other, 0)[1] else b"still open")
        time.sleep(900)
    print(os.read(said, 100).decode(), worker, sep="\\n", flush=True)
    time.sleep(900)
"""


def test_a_second_training_is_refused_and_told_who_has_the_folder(tmp_path):
    folder = tmp_path / "new" / "run"
    with locked_folder(folder):
        for _ in range(2):  # a refused one leaves the lock as it is
            with (
                raises_code(ConfigError, "folder_in_use", folder, os.getpid(), socket.gethostname()),
                locked_folder(folder),
            ):
                pass
    assert not list(folder.iterdir())
    with locked_folder(folder):
        pass


def test_a_killed_training_frees_its_folder_although_its_worker_lives(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        file, worker = process.stdout.readline(), int(process.stdout.readline())
        assert file == "still open\n"
        try:
            with raises_code(ConfigError, "folder_in_use", process.pid), locked_folder(tmp_path):
                pass
            process.kill()
            process.wait()
            os.kill(worker, 0)
            with locked_folder(tmp_path):
                pass
        finally:
            process.kill()
            os.kill(worker, signal.SIGKILL)


def test_without_locks_the_training_goes_on(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "ppocr_ext")

    def no_locks(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(logging.getLogger("ppocr_ext"), "propagate", True)
    (tmp_path / ".latest.pdparams.abcd_123.tmp").touch()  # perhaps of a training on another machine
    with locked_folder(tmp_path, warning_level=logging.DEBUG):
        assert caplog.text == ""  # the command that starts processes; process 0 warns
    with locked_folder(tmp_path), locked_folder(tmp_path):
        pass
    assert [file.name for file in tmp_path.iterdir()] == [".latest.pdparams.abcd_123.tmp"]
    assert os.strerror(errno.ENOLCK) in caplog.text


@pytest.fixture
def folders(tmp_path):
    """A folder with a finished run, another one, and one with records alone."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps({"status": "finished"}))
        for checkpoint in ("latest", "best_accuracy"):
            (tmp_path / name / f"{checkpoint}.pdparams").write_bytes(b"")
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "run.json").write_text(json.dumps({"status": "failed"}))
    return tmp_path


def config(**values):
    return Config({"Global": values})


def test_a_run_is_not_replaced_unless_told(folders):
    first = folders / "first"
    facts = ("finished", f"--resume {first}", "--overwrite", "Global.save_model_dir")
    with raises_code(ConfigError, "folder_holds_run", first, *facts):
        check_folder(first, config(), None, False)
    with raises_code(ConfigError, "folder_holds_run", f"--resume {first} --processes 2"):
        check_folder(first, config(), None, False, processes=2)
    assert check_folder(first, config(), None, True) == ["latest", "best_accuracy"]
    assert check_folder(folders / "failed", config(), None, False) == []
    assert (
        check_folder(first, config(checkpoints=f"{folders}/failed/../first/latest.pdparams"), None, True)
        == []
    )


def test_a_run_is_not_continued_in_the_folder_of_another(folders):
    first, other = folders / "first", config(checkpoints=f"{folders}/second/latest")
    with raises_code(ConfigError, "folder_holds_run", first, f"--resume {folders}/second", "--overwrite"):
        check_folder(first, other, None, False)
    assert check_folder(first, other, None, True) == ["latest", "best_accuracy"]
    assert check_folder(folders / "failed", other, None, False) == []


@pytest.mark.parametrize("key", ["Global.pretrained_model", "Architecture.Models.Teacher.pretrained"])
def test_the_weights_that_a_run_starts_from_are_not_removed(folders, key):
    values = config().with_values({key: f"{folders}/first/best_accuracy"})
    with raises_code(ConfigError, "folder_holds_run", key):
        check_folder(folders / "first", values, None, True)


def test_a_config_that_no_run_has_written_is_not_replaced(tmp_path):
    (tmp_path / "config.yml").write_text("Global: {}")
    with raises_code(ConfigError, "folder_holds_config", "Global.save_model_dir"):
        check_folder(tmp_path, Config({"Global": {}}), None, True)
    (tmp_path / "run.json").write_text("{}")
    assert check_folder(tmp_path, Config({"Global": {}}), None, True) == []
