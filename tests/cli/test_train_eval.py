"""Train, evaluate, and write predictions; and what is left of a training that a signal ends."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import captchas  # noqa: F401
from waiting import HANG, wait_for

from ppocr_ext.checkpoint.checkpoints import Position
from ppocr_ext.cli.main import main
from ppocr_ext.loop.events import Outcome

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.e2e


def options(data, folder, epochs=1):
    return [
        "-c",
        str(ROOT / "configs" / "quickstart" / "student.yml"),
        "-o",
        f"Global.save_model_dir={folder}",
        f"Global.epoch_num={epochs}",
        f"Global.character_dict_path={data}/dict.txt",
        "Global.print_batch_step=1",
        "Global.eval_batch_step=[0,4]",
        "Optimizer.lr.warmup_epoch=0",
        "-o",  # repeated flags add up
        "Train.dataset.size=16",
        "Train.loader.batch_size_per_card=4",
        "Train.loader.num_workers=0",
        f"Eval.dataset.data_dir={data}",
        f"Eval.dataset.label_file_list=[{data}/val_list.txt]",
    ]


def start(*arguments, **kwargs):
    command = [sys.executable, str(ROOT / "tools" / "train.py"), *arguments]
    return subprocess.Popen(command, text=True, **kwargs)


def test_train_then_eval_then_predictions(captchas, tmp_path, capsys):  # noqa: F811
    assert main(["train", *options(captchas, tmp_path / "run")]) == 0
    trained = capsys.readouterr()
    assert re.search(r"epoch 1/1  step 4/4  loss .*images/s  eta 0:00:00", trained.out)
    predictions = ["--head", "gtc", "--save-predictions", str(tmp_path / "p.tsv")]
    assert main(["eval", str(tmp_path / "run"), *predictions]) == 0
    judged = capsys.readouterr()
    assert re.search(r"^acc: \d\.\d{4}$", judged.out, re.MULTILINE)
    assert re.search(r"^norm_edit_dis: \d\.\d{4}$", judged.out, re.MULTILINE)
    assert "spaces ignored (Metric.ignore_space: true)" in judged.out
    assert "evaluated: 10\nskipped: 0\n" in judged.out
    assert "Traceback" not in trained.err + judged.err
    assert trained.out.startswith("host: PaddleOCR ") and judged.out.startswith("host: PaddleOCR ")
    rows = (tmp_path / "p.tsv").read_text().splitlines()
    assert rows[0] == "image\tlabel\tprediction\tconfidence"
    assert len(rows) == 11


def test_a_signal_to_the_whole_group_saves_too(captchas, tmp_path):  # noqa: F811
    arguments = [*options(captchas, tmp_path / "run", epochs=5000), "Train.loader.num_workers=1"]
    process = start(*arguments, cwd=tmp_path, stdout=subprocess.PIPE, start_new_session=True)
    log = tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: log.is_file() and log.read_text().count("\n") >= 2, process)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=HANG)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert (tmp_path / "run" / "latest.pdparams").is_file()
    wait_for(lambda: not alive(tmp_path))


def test_a_run_that_is_killed_leaves_no_worker_behind(captchas, tmp_path):  # noqa: F811
    arguments = [*options(captchas, tmp_path / "run", epochs=5000), "Train.loader.num_workers=1"]
    process = start(*arguments, cwd=tmp_path, stdout=subprocess.DEVNULL)
    log = tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: log.is_file() and log.read_text().count("\n") >= 2, process)
    assert len(alive(tmp_path)) > 1
    process.kill()
    process.wait(timeout=HANG)
    wait_for(lambda: not alive(tmp_path))


def alive(folder):
    """Processes whose command line names ``folder``."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command_line = (path / "cmdline").read_bytes()
            zombie = ") Z " in (path / "stat").read_text()
        except OSError:  # it has just ended
            continue
        if str(folder).encode() in command_line and not zombie:
            found.append(path.name)
    return found


def test_a_training_whose_reader_ends_saves_and_stops(captchas, tmp_path):  # noqa: F811
    arguments = options(captchas, tmp_path / "run", epochs=5000)
    with start(*arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while "step 1/" not in process.stdout.readline():
            pass
        process.stdout.close()  # as `head` does
        said = process.stderr.read()
    assert process.returncode == 128 + signal.SIGPIPE, said
    assert "Traceback" not in said
    assert (tmp_path / "run" / "latest.pdparams").is_file()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"


# the import of Paddle stops in its middle, when its library is loaded, until a signal is there
PAUSE = """
import pathlib, signal, sys, time

class Pause:
    def find_spec(self, name, path=None, target=None):
        if name == "paddle.nn":
            pathlib.Path("pausing").touch()
            while not signal.sigpending():
                time.sleep(0.01)

sys.meta_path.insert(0, Pause())
"""


def test_a_termination_while_paddle_is_imported_is_one_line(captchas, tmp_path):  # noqa: F811
    arguments = options(captchas, tmp_path / "run")
    (tmp_path / "sitecustomize.py").write_text(PAUSE)
    found = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start(*arguments, cwd=tmp_path, env=found, **pipes) as process:
        wait_for((tmp_path / "pausing").exists, process)
        assert "libpaddle" in Path(f"/proc/{process.pid}/maps").read_text()
        process.terminate()
        said = process.communicate(timeout=HANG)
    assert (process.returncode, said) == (143, ("", "terminated\n"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("status", "number", "code"),
    [
        ("finished", None, 0),
        ("stopped", None, 0),
        ("stopped", signal.SIGINT, 130),
        ("nonfinite", None, 1),
        ("collapsed", None, 1),
    ],
)
def test_the_exit_code_says_how_a_run_ended(monkeypatch, tmp_path, status, number, code):
    def ended(config, **options):
        return Outcome(status, Position(), {}, "why", number)

    monkeypatch.setattr("ppocr_ext.loop.session.train", ended)
    assert main(["train", *options(tmp_path, tmp_path / "run")]) == code
