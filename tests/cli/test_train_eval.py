"""The commands as a user runs them, in a process of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ppocr_ext.synth.captcha import CaptchaOptions, CaptchaSource
from ppocr_ext.synth.dataset_folder import DatasetFolder, make_folder

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def captchas(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captchas")
    make_folder(folder, DatasetFolder(CaptchaSource(CaptchaOptions(), seed=5), train=64, val=10))
    return folder


def options(captchas, folder, epochs=1):
    return [
        "-c",
        str(ROOT / "configs" / "quickstart" / "student.yml"),
        "-o",
        f"Global.save_model_dir={folder}",
        f"Global.epoch_num={epochs}",
        f"Global.character_dict_path={captchas}/dict.txt",
        "Global.print_batch_step=1",
        "Global.eval_batch_step=[0,4]",
        "Optimizer.lr.warmup_epoch=0",
        "-o",  # repeated flags add up
        "Train.dataset.size=64",
        "Train.loader.batch_size_per_card=16",
        "Train.loader.num_workers=0",
        f"Eval.dataset.data_dir={captchas}",
        f"Eval.dataset.label_file_list=[{captchas}/val_list.txt]",
    ]


def command(tool, *arguments):
    return [sys.executable, str(ROOT / "tools" / f"{tool}.py"), *arguments]


def run(*arguments, **kwargs):
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300, **kwargs)


def test_train_then_eval_then_predictions(captchas, tmp_path):
    trained = run("train", *options(captchas, tmp_path / "run"), cwd=tmp_path)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert re.search(r"epoch 1/1  step 4/4  loss .*images/s  eta 0:00:00", trained.stdout)
    assert "Traceback" not in trained.stderr
    judged = run(
        "eval",
        "-c",
        str(tmp_path / "run" / "config.yml"),
        "-o",
        f"Global.checkpoints={tmp_path}/run/best_accuracy",
        "--head",
        "gtc",
        "--save-predictions",
        str(tmp_path / "p.tsv"),
        cwd=tmp_path,
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert re.search(r"^acc: \d\.\d{4}$", judged.stdout, re.MULTILINE)
    assert re.search(r"^norm_edit_dis: \d\.\d{4}$", judged.stdout, re.MULTILINE)
    assert "spaces ignored (Metric.ignore_space: true)" in judged.stdout
    assert "evaluated: 10\nskipped: 0\n" in judged.stdout
    rows = (tmp_path / "p.tsv").read_text().splitlines()
    assert rows[0] == "image\tlabel\tprediction\tconfidence"
    assert len(rows) == 11


def test_ctrl_c_saves_and_the_run_goes_on(captchas, tmp_path):
    arguments = options(captchas, tmp_path / "run", epochs=50)
    process = subprocess.Popen(command("train", *arguments), cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    log = tmp_path / "run" / "metrics.jsonl"
    deadline = time.time() + 120
    while not (log.is_file() and log.read_text().count("\n") >= 3) and time.time() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, output
    assert f"Global.checkpoints={tmp_path}/run/latest" in output
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "stopped"
    done = record["global_step"]
    went_on = run(
        "train",
        *arguments,
        "-o",
        f"Global.checkpoints={tmp_path}/run/latest",
        f"Global.epoch_num={done // 4 + 1}",
        cwd=tmp_path,
    )
    assert went_on.returncode == 0, went_on.stdout + went_on.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["resumed_from_step"] == done


def test_a_fault_is_a_sentence_and_exit_2(captchas, tmp_path):
    found = run(
        "train", *options(captchas, tmp_path / "run"), "Global.character_dict_path=nowhere.txt", cwd=tmp_path
    )
    assert found.returncode == 2
    assert "nowhere.txt" in found.stderr
    assert "Traceback" not in found.stderr


def test_two_processes_train_together(captchas, tmp_path):
    arguments = options(captchas, tmp_path / "run")
    launched = subprocess.run(
        [
            *[sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2"],
            *["--log_dir", str(tmp_path / "log")],
            *command("train", *arguments)[1:],
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    logs = "".join(p.read_text() for p in (tmp_path / "log").glob("workerlog.*"))
    assert launched.returncode == 0, launched.stdout + launched.stderr + logs
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["processes"], record["status"], record["global_step"]) == (2, "finished", 2)


RANKS = """
import os, sys
from pathlib import Path
import ppocr_ext  # before Paddle, whose zlib of 2.6 must not come first
import paddle.distributed as dist
from ppocr_ext.config import load
from ppocr_ext.checkpoint.model_state import state_digest
from ppocr_ext.loop.events import Hook
from ppocr_ext.loop.session import train


class Report(Hook):
    def on_start(self, run, position):
        self.run = run

    def on_step(self, step):
        if step.position.global_step == 1 and dist.get_rank() == int(sys.argv[3]):
            os.kill(os.getpid(), 15)  # one rank alone is told to stop

    def on_end(self, outcome):
        # BatchNorm's running statistics are of each rank's own images
        trained = [p for p in self.run.network.parameters() if not p.stop_gradient]
        text = outcome.status + " " + str(sum(float((p**2).sum()) for p in trained))
        Path(sys.argv[2], f"rank{dist.get_rank()}").write_text(text)


train(load([sys.argv[1]]), hooks=[Report()])
"""


@pytest.mark.parametrize("stopped", [-1, 1])
def test_processes_hold_the_same_weights_and_stop_together(captchas, tmp_path, stopped):
    from ppocr_ext.config import load

    arguments = options(captchas, tmp_path / "run", epochs=2)
    config = load([arguments[1]], [a for a in arguments[3:] if a != "-o"])
    (tmp_path / "config.yml").write_text(config.to_yaml())
    (tmp_path / "ranks.py").write_text(RANKS)
    launched = subprocess.run(
        [
            *[sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2"],
            *["--log_dir", str(tmp_path / "log")],
            *[str(tmp_path / "ranks.py"), str(tmp_path / "config.yml"), str(tmp_path), str(stopped)],
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    logs = "".join(p.read_text() for p in (tmp_path / "log").glob("workerlog.*"))
    assert launched.returncode == 0, launched.stdout + launched.stderr + logs
    said = [(tmp_path / f"rank{rank}").read_text().split() for rank in (0, 1)]
    assert said[0] == said[1]
    assert said[0][0] == ("finished" if stopped < 0 else "stopped")
    assert (tmp_path / "run" / "latest.pdparams").is_file()


def test_a_signal_to_the_whole_group_saves_too(captchas, tmp_path):
    arguments = [*options(captchas, tmp_path / "run", epochs=50), "Train.loader.num_workers=1"]
    process = subprocess.Popen(
        command("train", *arguments), cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    log = tmp_path / "run" / "metrics.jsonl"
    deadline = time.time() + 120
    while not (log.is_file() and log.read_text().count("\n") >= 2) and time.time() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert (tmp_path / "run" / "latest.pdparams").is_file()
    assert not alive(tmp_path)


def test_a_run_that_is_killed_leaves_no_worker_behind(captchas, tmp_path):
    arguments = [*options(captchas, tmp_path / "run", epochs=50), "Train.loader.num_workers=1"]
    process = subprocess.Popen(command("train", *arguments), cwd=tmp_path, stdout=subprocess.DEVNULL)
    log = tmp_path / "run" / "metrics.jsonl"
    deadline = time.time() + 120
    while not (log.is_file() and log.read_text().count("\n") >= 2) and time.time() < deadline:
        time.sleep(0.1)
    assert len(alive(tmp_path)) > 1
    process.kill()
    process.wait(timeout=60)
    deadline = time.time() + 10
    while alive(tmp_path) and time.time() < deadline:
        time.sleep(0.1)
    assert not alive(tmp_path)


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
