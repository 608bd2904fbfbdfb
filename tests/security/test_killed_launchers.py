"""`kill -9` of what has started the processes of a training: they end, and the run folder is free."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import tiny_config
from waiting import wait_for

from ppocr_ext.errors import ConfigError
from ppocr_ext.io.atomic import is_running
from ppocr_ext.loop.folder_lock import locked_folder

HERE = Path(__file__).parent
TRAIN = HERE.parents[1] / "tools" / "train.py"
LAUNCHER = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", "processes"]
pytestmark = pytest.mark.e2e


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def steps(run: Path) -> int:
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    return sum(json.loads(line)["kind"] == "train" for line in lines if line.endswith("}"))


def is_free(run: Path) -> bool:
    try:
        with locked_folder(run):
            return True
    except ConfigError:
        return False


@pytest.mark.parametrize(
    ("words", "killed", "hangs"),
    [
        ([TRAIN, "--processes", "2"], "command", False),
        ([TRAIN, "--processes", "2"], "launcher", True),
        ([*LAUNCHER, TRAIN], "command", False),  # which is the launcher
    ],
    ids=["the command", "its launcher, in a step", "a launcher of the user's"],
)
def test_processes_end_with_who_started_them(
    captchas: Path, tmp_path: Path, words: list[Any], killed: str, hangs: bool
) -> None:
    values: dict[str, Any] = {
        "Global.use_gpu": False,
        "Global.epoch_num": 50_000,
        "Global.eval_batch_step": [0, 100_000],
        "Global.dry_step": False,
        "Train.loader.batch_size_per_card": 4,
    }
    if hangs:
        values |= {"Global.plugins": ["hanging_parts"], "Loss": {"name": "HangingCTC"}}
    config, run = tiny_config(captchas, tmp_path, "student", **values), tmp_path / "run"
    (tmp_path / "my.yml").write_text(config.to_yaml(), encoding="utf-8")
    places = [HERE, HERE.parent, HERE.parent / "loop", HERE.parents[1]]
    process = subprocess.Popen(
        [sys.executable, *map(str, words), "-c", "my.yml"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, places))},
        stdout=subprocess.DEVNULL,
    )
    wait_for((tmp_path / "hangs").exists if hangs else lambda: steps(run) >= 3, process)
    [launcher] = [process.pid] if words[0] == "-m" else children(process.pid)
    trainers = children(launcher)
    assert len(trainers) == 2
    os.kill(process.pid if killed == "command" else launcher, signal.SIGKILL)
    try:
        wait_for(lambda: not any(map(is_running, [launcher, *trainers])))
    finally:
        for pid in filter(is_running, trainers):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    assert (
        "launcher of this process, or the command that started it, has ended"
        in (run / "train.log").read_text()
    )
    wait_for(lambda: is_free(run))  # the system frees a lock a little after the end of a process
    if not hangs:  # they had the time to save
        assert json.loads((run / "run.json").read_text())["status"] == "stopped"
        assert (run / "latest.states").is_file()
