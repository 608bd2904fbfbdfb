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

from ppocr_ext.data.captcha import CaptchaOptions
from ppocr_ext.data.captcha_files import CaptchaFolder, make_captcha_folder

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def captchas(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captchas")
    make_captcha_folder(folder, CaptchaFolder(CaptchaOptions(), train=64, val=10, seed=5))
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
    assert "judged: 10\nleft out: 0\n" in judged.stdout
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
