"""Two processes on a CPU, through Paddle's launcher."""

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from one_of_two import Rows
from tiny_runs import ONE_BRANCH, metrics
from waiting import finish, launch_two, wait_for

from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop.session import train
from ppocr_ext.recipes.teacher_cache_job import CacheBuilder, CacheOptions, build_cache
from ppocr_ext.run.run import Run

HERE = Path(__file__).parent
SCRIPT = HERE / "one_of_two.py"
TRAIN = HERE.parents[1] / "tools" / "train.py"
STILL = ("RecAug", "RecConAug")  # transforms that draw
pytestmark = pytest.mark.e2e


@pytest.fixture
def two(tiny, captchas, tmp_path):
    """Config of a run of two processes that draws nothing and reads its lines, all but one, in their order."""
    lines = (captchas / "train_list.txt").read_text()
    write_text(tmp_path / "train.txt", "nowhere.png\t1234\n" + lines)

    def build(name, kind="student", **values):
        transforms = tiny(kind).thaw()["Train"]["dataset"]["transforms"]
        return tiny(
            kind,
            **{
                "Global.save_model_dir": str(tmp_path / name),
                "Global.use_gpu": False,
                "Global.report": False,
                "Train.dataset.label_file_list": [str(tmp_path / "train.txt")],
                "Train.dataset.transforms": [t for t in transforms if next(iter(t)) not in STILL],
                "Train.loader.batch_size_per_card": 4,
                "Train.loader.shuffle": False,
                **values,
            },
        )

    return build


def job(tmp_path, name, config, **more):
    write_text(tmp_path / f"{name}.yml", config.to_yaml())
    return {"config": str(tmp_path / f"{name}.yml"), "keep": str(tmp_path / name), **more}


def trained(tmp_path, name):
    """Parameters of both processes, which must be the same."""
    first, second = (dict(np.load(tmp_path / f"{name}.{rank}.npz")) for rank in (0, 1))
    assert first.keys() == second.keys() != set()
    for key, value in first.items():
        np.testing.assert_array_equal(value, second[key], err_msg=key)
    return first


def launch(tmp_path):
    path = os.pathsep.join([str(HERE), str(HERE.parents[1])])
    return launch_two(tmp_path / "launched", SCRIPT, tmp_path / "jobs.json", PYTHONPATH=path)


def steps(folder, kind):
    return [line["step"] for line in metrics(folder, kind)]


def run_all(tmp_path, jobs):
    write_text(tmp_path / "jobs.json", json.dumps(jobs))
    return finish(launch(tmp_path), 0)


def test_two_processes_train_together(tiny, two, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    one_branch = {**ONE_BRANCH, "Optimizer.lr.learning_rate": 0.01}
    grouped = {"Global.accumulate": 2, "Train.loader.batch_size_per_card": 2}
    silent = {"Global.plugins": ["processes_parts"], "Loss": {"name": "SilentCTC"}}
    ctc = {"Loss": ONE_BRANCH["Loss"]}
    transforms = tiny("student").thaw()["Train"]["dataset"]["transforms"]
    ctc["Train.dataset.transforms"] = [transforms[0], {"RecAug": {}}, *transforms[1:]]
    tps = {"name": "TPS", "num_fiducial": 8, "loc_lr": 0.1, "model_name": "small"}
    straight = two("straight", **one_branch, **{"Architecture.Transform": tps})
    broken = two("broken", **ctc)
    uneven = two("uneven", **one_branch, **{"Global.accumulate": 2})
    # evaluated before the first step and after the last one, where PaddleOCR's loop does not
    tuned = {"Global.pretrained_model": str(tmp_path / "ctc" / "latest"), "Global.eval_batch_step": [0, 4]}
    tuned["Eval.general.dataset.label_file_list"] = [str(tmp_path / "train.txt")]  # process 0 alone reads it
    taught = {"dataset": {"label_file_list": [str(tmp_path / "train.txt")]}, "share": 0.4, "labelled": False}
    tuned["Train.mix"] = [taught]
    jobs = [
        job(tmp_path, "double", two("double", **one_branch)),
        job(tmp_path, "grouped", two("grouped", **one_branch, **grouped)),
        job(tmp_path, "uneven", uneven, rows=[[0, 1, 2, 3], [0]]),
        job(tmp_path, "straight", straight),
        job(tmp_path, "silent", two("silent", **silent)),
        job(tmp_path, "ctc", two("ctc", **ctc)),
        job(tmp_path, "tuned", two("tuned", **ctc, **tuned)),
        job(tmp_path, "distilled", two("distilled", "distill")),
        job(tmp_path, "skips", two("skips", **ctc, **{"Global.nonfinite": "skip"}), nan_part=[1, 2]),
        job(tmp_path, "broken", broken, stop_after=[1, 4]),
        job(
            tmp_path,
            "goes_on",
            broken.with_values({"Global.checkpoints": str(tmp_path / "broken" / "latest")}),
        ),
    ]
    said = run_all(tmp_path, jobs)

    # as one process with the double batch
    train(two("single", **one_branch).with_values({"Train.loader.batch_size_per_card": 8}))
    single = read_state(tmp_path / "single" / "latest.pdparams")
    for run in ("double", "grouped"):
        for name, value in trained(tmp_path, run).items():
            np.testing.assert_allclose(value, single[name], rtol=1e-4, atol=1e-5, err_msg=name)

    # a group of unequal batches, as one process with all their samples in a batch: four of one, then of the other
    rows = Rows([0, 1, 2, 3, 4, 8, 9, 10, 11, 12])
    together = {"Train.loader.batch_size_per_card": 16, "Train.loader.drop_last": False}
    train(two("joined", **one_branch).with_values(together), hooks=[rows])
    joined = read_state(tmp_path / "joined" / "latest.pdparams")
    for name, value in trained(tmp_path, "uneven").items():
        np.testing.assert_allclose(value, joined[name], rtol=1e-4, atol=1e-5, err_msg=name)

    # the layer of TPS that nothing trains is in the checkpoint
    assert {name for name in trained(tmp_path, "straight") if "transform.grid" in name} == set()
    state = read_state(tmp_path / "straight" / "latest.pdparams")
    assert not state["transform.grid_generator.fc.weight"].any()
    assert state["transform.loc_net.fc2.weight"].any()

    # a loss that reads the CTC branch alone: the other gets no gradient, said or not
    for name in ("ctc", "silent"):
        assert not any("gtc" in parameter for parameter in trained(tmp_path, name))
    assert "the loss gives no gradient to" in said

    # the teacher is frozen (each process compares it itself), the checkpoint has the plain names
    student = trained(tmp_path, "distilled")
    state = read_state(tmp_path / "distilled" / "latest.pdparams")
    assert all(name.startswith("Student.") for name in state)
    assert student.keys() <= state.keys()
    run = Run.build(tiny("distill", **{"Global.checkpoints": str(tmp_path / "distilled" / "latest")}), "eval")
    for name, value in student.items():
        loaded = run.network.Student.state_dict()[name.removeprefix("Student.")]
        np.testing.assert_array_equal(loaded.numpy(), value, err_msg=name)

    # process 0 alone writes: the files of one process, and each step once; all leave the bad line out
    assert (tmp_path / "double" / "usable_train").is_dir()
    assert {p.name for p in (tmp_path / "double").iterdir()} == {
        p.name for p in (tmp_path / "single").iterdir()
    }
    for name in ("double", "broken"):
        assert steps(tmp_path / name, "train") == [1, 2, 3, 4, 5, 6]
        assert steps(tmp_path / name, "eval") == [3, 6]

    trained(tmp_path, "tuned")
    assert steps(tmp_path / "tuned", "eval") == [0, 4, 6]
    assert json.loads((tmp_path / "tuned" / "general.json").read_text())["points"]

    # a value that is bad in process 1 alone, without a gradient: both skip the step
    trained(tmp_path, "skips")
    assert [line["step"] for line in metrics(tmp_path / "skips") if line.get("skipped")] == [2]
    bad = {
        folder.name: json.loads((folder / "incident.json").read_text())["bad"]
        for folder in (tmp_path / "skips" / "incidents").iterdir()
    }
    assert bad["step_000002_rank1"] == ["loss other is nan"]
    assert "step_000002_rank0" in bad

    # stopped by a signal to process 1, and gone on with: each process has drawn as if it had not been stopped
    whole = trained(tmp_path, "ctc")
    for name, value in trained(tmp_path, "goes_on").items():
        np.testing.assert_array_equal(value, whole[name], err_msg=name)


@pytest.mark.parametrize(
    ("how", "sentences"),  # ours, or the launcher's where that is the first to see it
    [
        ("raise", ("Process 1 of 2 (127.0.0.1; its messages: ", "error: the disk of this process is broken")),
        ("kill", ("has failed: killed, perhaps for lack of memory", "Container rank 1 status failed")),
    ],
)
def test_a_process_that_fails_ends_the_run_with_its_name(two, tmp_path, how, sentences):
    config = two("lost", **{"Global.epoch_num": 50_000, "Global.eval_batch_step": [0, 100000]})
    write_text(tmp_path / "jobs.json", json.dumps([job(tmp_path, "lost", config, fail=[1, 2, how])]))
    process = launch(tmp_path)
    said = finish(process)
    assert process.returncode != 0
    assert "log/workerlog.1" in said and any(sentence in said for sentence in sentences), said


def command(folder, *words):
    """`ppocr-ext train` as a process, in an empty folder."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, TRAIN, *map(str, words)],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_one_command_trains_in_two_processes_and_goes_on_after_an_interrupt(two, tmp_path, caplog):
    config = two("long", "distill", **{"Global.epoch_num": 50_000, "Global.eval_batch_step": [0, 100000]})
    options = CacheOptions(tmp_path / "cache", views=2)
    build_cache(config, CacheBuilder(config, options), options)
    config = config.with_values({"Train.teacher_cache": str(options.folder)})
    write_text(tmp_path / "long.yml", config.to_yaml())
    process = command(tmp_path / "here", "-c", tmp_path / "long.yml", "--processes", 2)
    run = tmp_path / "long"
    wait_for(lambda: (run / "metrics.jsonl").is_file() and len(steps(run, "train")) >= 3, process)
    process.send_signal(signal.SIGINT)
    said = finish(process, 130)
    record = json.loads((run / "run.json").read_text())
    assert (record["processes"], record["status"]) == (2, "stopped")
    assert "2 x 4 = 8 samples" in said and "Train.loader.batch_size_per_card=2" in said
    assert said.count("\nepoch 1/50000  step 1/") == 1  # of process 0 alone
    assert list((tmp_path / "here").iterdir()) == []
    assert {file.name for file in (run / "processes").iterdir()} == {
        "launcher.log",
        "workerlog.0",
        "workerlog.1",
    }
    for log in (run / "processes").glob("workerlog.*"):  # the cache has answered in both
        [live, batches] = re.findall(r"teacher cache: (\d+) of (\d+) batches", log.read_text())[-1]
        assert live == "0" and int(batches) >= 3

    # the command that it prints
    done = record["global_step"]
    [again] = [line for line in said.splitlines() if line.startswith("resume with: ")]
    words = shlex.split(again)[4:]
    assert words[-2:] == ["--processes", "2"]
    epochs = done // 3 + 2
    process = command(tmp_path / "here", *words, "-o", f"Global.epoch_num={epochs}")
    said = finish(process, 0)
    assert steps(run, "train")[-1] == 3 * epochs
    assert Checkpoint(run / "latest").train_state().processes == 2

    # another number of processes is named
    resumed = {
        "Global.checkpoints": str(run / "latest"),
        "Global.epoch_num": epochs + 1,
        "Global.dry_step": False,
    }
    caplog.set_level("WARNING", "ppocr_ext")
    logging.getLogger("ppocr_ext").propagate = True
    Run.build(config.with_values(resumed), "train")
    assert "--processes 2" in caplog.text


def test_processes_that_cannot_start_leave_the_error_and_no_folder(two, tmp_path):
    write_text(tmp_path / "bad.yml", two("bad", **{"Global.epohc_num": 3}).to_yaml())
    said = finish(command(tmp_path / "here", "-c", tmp_path / "bad.yml", "--processes", 2), 2)
    assert said.count("epohc_num: unknown key") == 1
    assert not (tmp_path / "bad").exists()
