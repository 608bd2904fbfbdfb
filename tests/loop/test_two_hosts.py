"""Training on two hosts, which are namespaces of this machine; see two_hosts.py."""

import json
import os
import re
import shutil
import signal
import time
from contextlib import ExitStack

import numpy as np
import pytest
from tiny_runs import metrics, tiny_config
from two_hosts import PACKAGE, finish, launch, two_hosts, within

import ppocr_ext
from ppocr_ext.checkpoint.checkpoints import Checkpoint
from ppocr_ext.checkpoint.files import read_state
from ppocr_ext.loop.session import train
from ppocr_ext.teacher_cache.store import Store

pytestmark = pytest.mark.e2e
TRAIN = ("train", "-c", "train.yml")
LONG = {"Global.epoch_num": 50_000, "Global.eval_batch_step": [0, 100_000]}
EPOCH = 3  # steps


@pytest.fixture
def hosts(tmp_path):
    with two_hosts(tmp_path) as both:
        yield both


@pytest.fixture(scope="module")
def earlier(captchas, tmp_path_factory):
    """Folders of two finished runs, of one epoch and of two."""
    folders = []
    for epochs in (1, 2):
        folder = tmp_path_factory.mktemp("earlier")
        train(tiny_config(captchas, folder, "student", **{"Global.epoch_num": epochs}))
        folders.append(folder / "run")
    return folders


def errors(job):
    """What a command has printed from its first error on, without the lines of the launcher."""
    lines = [line for line in job.said.splitlines() if not line.startswith("LAUNCH")]
    return "\n".join(lines).partition("error: ")[2]


def test_two_hosts_train_as_two_processes_of_one(hosts, captchas):
    for host in hosts:
        host.furnish(captchas)
    finish([launch(host, *TRAIN) for host in hosts], 0, 0)
    one, two = hosts
    alone = one.ppocr_ext(*TRAIN, "--processes", 2, "-o", "Global.save_model_dir=alone")
    finish([alone], 0)
    for checkpoint in ("latest", "best_accuracy"):
        expected = read_state(one.folder / "alone" / f"{checkpoint}.pdparams")
        trained = read_state(one.folder / "run" / f"{checkpoint}.pdparams")
        assert trained.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(trained[name], value, err_msg=name)
    assert not list(two.folder.glob("run/*"))  # process 0 alone writes


@pytest.mark.parametrize(
    ("place", "values", "problem"),
    [
        (1, {"Train.dataset.label_file_list": ["data/nowhere.txt"]}, "data/nowhere.txt"),
        (0, {"Global.epohc_num": 3}, "epohc_num"),
        (1, {"Global.plugins": ["nowhere_parts"]}, "nowhere_parts"),
    ],
)
def test_a_start_that_fails_on_one_host_ends_both(hosts, captchas, place, values, problem):
    for number, host in enumerate(hosts):
        host.furnish(captchas, **(values if number == place else {}))
    jobs = [launch(host, *TRAIN) for host in hosts]
    within(60, lambda: problem in errors(jobs[place]), jobs[place].log)
    finish(jobs, 2, 2, seconds=30)
    assert problem in errors(jobs[1 - place])


# What the second host has in another form: a function that changes its files.


def swap_characters(host, earlier):
    file = host.folder / "data" / "dict.txt"
    first, second, *others = file.read_text().splitlines()
    file.write_text("\n".join([second, first, *others, ""]))


def change_label(host, earlier):
    file = host.folder / "data" / "train_list.txt"
    first, *others = file.read_text().splitlines(keepends=True)
    path, label = first.rstrip("\n").split("\t")
    file.write_text("".join([f"{path}\t{label[::-1]}\n", *others]))


def drop_line(host, earlier):
    file = host.folder / "data" / "train_list.txt"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))


def change_rate(host, earlier):
    file = host.folder / "train.yml"
    text = re.sub(r"learning_rate: .*", "learning_rate: 0.003", file.read_text())
    assert text != file.read_text()
    file.write_text(text)


def change_weights(host, earlier):
    copy_checkpoint(earlier[1], host.folder / "old")


def copy_checkpoint(run, folder):
    folder.mkdir(exist_ok=True)
    for file in run.glob("latest.*"):
        shutil.copy(file, folder)


START = {"Global.pretrained_model": "old/latest"}
RESUME = {"Global.checkpoints": "old/latest", "Global.epoch_num": 4}


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        (
            START,
            {
                change_label: "train_list.txt",
                change_rate: "learning_rate",
                change_weights: "Global.pretrained_model",
            },
        ),
        ({}, {swap_characters: "dictionary"}),  # with weights, that host refuses it alone
        (RESUME, {drop_line: "train_list.txt", change_weights: "Global.checkpoints"}),
    ],
)
def test_what_the_hosts_must_have_in_common_is_compared(hosts, captchas, earlier, values, changes):
    for host in hosts:
        host.furnish(captchas, **values)
        copy_checkpoint(earlier[0], host.folder / "old")
    for change in changes:
        change(hosts[1], earlier)
    check_refused(hosts, [launch(host, *TRAIN) for host in hosts], changes.values())


def test_another_version_of_the_package_is_refused(hosts, captchas):
    one, two = hosts
    for host in hosts:
        host.furnish(captchas)
    copy = two.folder / "library" / "ppocr_ext"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / "__init__.py").read_text()
    assert ppocr_ext.__version__ in text
    (copy / "__init__.py").write_text(text.replace(ppocr_ext.__version__, "0.0.1"))
    jobs = [launch(one, *TRAIN), launch(two, *TRAIN, package=copy, PYTHONPATH=str(copy.parent))]
    check_refused(hosts, jobs, ["0.0.1", ppocr_ext.__version__])


def check_refused(hosts, jobs, differences):
    """Check that both hosts end before the first step and name ``differences``, and the host that has them."""
    finish(jobs, 2, 2, seconds=90)
    for job in jobs:
        assert "epoch 1/" not in job.said
        for each in (hosts[1].address, *differences):
            assert each in errors(job), job.said
    assert not list(hosts[0].folder.glob("run/latest.*"))


@pytest.mark.parametrize("place", [0, 1])
def test_a_resume_needs_the_checkpoint_on_both_hosts(hosts, captchas, earlier, place):
    for host in hosts:
        host.furnish(captchas, **RESUME)
    copy_checkpoint(earlier[0], hosts[place].folder / "old")
    jobs = [launch(host, *TRAIN) for host in hosts]
    within(60, lambda: "old/latest" in errors(jobs[1 - place]), jobs[1 - place].log)
    finish(jobs, 2, 2, seconds=30)
    assert "old/latest" in errors(jobs[place])


# How a host is lost: functions of the host and of the number of its training process.


def cut(host, trainer):
    host.cut_cable()


def stop(host, trainer):
    os.kill(trainer, signal.SIGSTOP)


def kill(host, trainer):
    os.kill(trainer, signal.SIGKILL)


@pytest.mark.parametrize(
    "faults",  # those that are noticed late are waited for at the same time, each with two hosts of its own
    [((cut, 1), (stop, 0), (stop, 1)), ((kill, 0), (kill, 1))],
)
def test_a_lost_host_is_named_and_ends_the_other(captchas, tmp_path, faults):
    with ExitStack() as stack:
        cases = []
        for fault, place in faults:
            hosts = stack.enter_context(two_hosts(tmp_path / f"{fault.__name__}_{place}"))
            for host in hosts:
                host.furnish(captchas, **LONG)
            cases.append((fault, place, hosts, [launch(host, *TRAIN) for host in hosts]))
        for fault, place, hosts, jobs in cases:
            within(120, lambda first=jobs[0]: first.said.count("\nepoch ") > 2 * EPOCH, jobs[0].log)
            time.sleep(2)  # a host reads every half second which checkpoint is the last
            fault(hosts[place], jobs[place].trainer)
        for fault, place, hosts, jobs in cases:
            for survivor in (0, 1) if fault is cut else (1 - place,):
                check_lost(hosts, jobs, survivor)
            if fault is stop:
                os.kill(jobs[place].trainer, signal.SIGCONT)
                assert jobs[place].wait(60) != 0
                continue  # its folder is as after `kill`
            if fault is cut:
                hosts[place].mend_cable()
            check_resume(hosts)


def check_lost(hosts, jobs, survivor):
    """Check how a host ends that has lost the other one."""
    assert jobs[survivor].wait(60) != 0
    said = jobs[survivor].said
    error = errors(jobs[survivor])
    lost = hosts[1 - survivor].address
    assert lost in error and re.search(r"step \d+", error) and "run/latest" in error, said
    assert "C++ Traceback" not in said and "terminate called" not in said
    assert not hosts[survivor].core_dumps()
    if survivor == 0:  # which has the run folder
        run = hosts[0].folder / "run"
        saved = Checkpoint(run / "latest").train_state().position.global_step
        assert f"run/latest (step {saved})" in error, said
        record = json.loads((run / "run.json").read_text())
        assert record["status"] == "failed"
        assert lost in record["reason"]


def check_resume(hosts):
    """Check that both hosts go on from the last checkpoint, after the second one has got the run folder too."""
    run = hosts[0].folder / "run"
    shutil.copytree(run, hosts[1].folder / "run", dirs_exist_ok=True)
    epochs = metrics(run, "train")[-1]["step"] // EPOCH + 2
    words = ["train", "--resume", "run", "-o", f"Global.epoch_num={epochs}"]
    finish([launch(host, *words) for host in hosts], 0, 0)
    record = json.loads((run / "run.json").read_text())
    assert record["resumed_from_step"] > 0
    assert record["global_step"] == EPOCH * epochs


def test_two_hosts_build_one_teacher_cache(hosts, captchas, tmp_path):
    words = ["cache-teacher", "-c", "train.yml", "--views", 20, "--processes", 1, "--output"]
    for host in hosts:
        host.furnish(captchas, "distill", **{"Train.loader.batch_size_per_card": 1})
    finish([host.ppocr_ext(*words, tmp_path / "shared") for host in hosts], 0, 0)
    store = Store(tmp_path / "shared")
    assert store.entries == 20 * 24
    assert not [file for file in (tmp_path / "shared").iterdir() if file.suffix == ".tmp"]
