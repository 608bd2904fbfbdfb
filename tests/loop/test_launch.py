"""`ppocr-ext train --processes N` before anything starts; what starts is tested in test_processes.py."""

import os
import subprocess
import sys
from types import SimpleNamespace

import paddle
import pytest
from error_codes import raises_code

from ppocr_ext.cli.main import main
from ppocr_ext.config import load
from ppocr_ext.errors import ConfigError, ProcessError
from ppocr_ext.io.atomic import write_text
from ppocr_ext.loop import launch


@pytest.fixture
def plain(monkeypatch):
    for name in ("PADDLE_LOCAL_RANK", "PADDLE_TRAINERS_NUM", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def config_of(tmp_path, text):
    write_text(tmp_path / "my.yml", text)
    return load([tmp_path / "my.yml"])


def test_the_number_of_processes_decides_who_starts_them(plain, monkeypatch):
    assert launch.is_started(1)
    assert not launch.is_started(2)
    with raises_code(ConfigError, "bad_value", 0):
        launch.is_started(0)
    monkeypatch.setenv("PADDLE_LOCAL_RANK", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    assert launch.is_started(2)
    with raises_code(ConfigError, "inside_launcher", 2, 4):
        launch.is_started(4)


def test_what_the_device_cannot_do_is_refused(plain, tmp_path, monkeypatch):
    shared = config_of(tmp_path, "Global: {use_gpu: false, use_sync_bn: true}")
    with raises_code(ConfigError, "unsupported_device", "my.yml:1"):
        launch.start_processes(shared, 2, [])
    monkeypatch.setattr(paddle, "is_compiled_with_cuda", lambda: True)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 1)
    with raises_code(ConfigError, "too_few_gpus", "found 1 for 2"):
        launch.start_processes(config_of(tmp_path, "Global: {use_gpu: true}"), 2, [])
    assert [file.name for file in tmp_path.iterdir()] == ["my.yml"]


@pytest.mark.parametrize(
    ("given", "cores", "threads", "warns"),
    [
        (None, 4, "2", False),
        (None, 5, "2", False),
        (None, 1, "1", True),
        ("3", 8, "3", False),
        ("3", 4, "3", True),
    ],
)
def test_the_processes_share_the_cores(plain, monkeypatch, caplog, given, cores, threads, warns):
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setenv("PADDLE_LOG_DIR", "elsewhere")  # the launcher would obey it
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.setattr(launch.LOG, "propagate", True)
    environment = launch._environment(2, on_cpu=True)
    assert environment["OMP_NUM_THREADS"] == threads
    assert "PADDLE_LOG_DIR" not in environment
    assert bool(caplog.records) == warns


def test_a_launcher_that_fails_is_an_error_with_its_last_lines(plain, tmp_path, monkeypatch):
    write_text(tmp_path / "paddle" / "__init__.py", "raise RuntimeError('no launcher here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    config = config_of(tmp_path, f"Global: {{save_model_dir: {tmp_path / 'run'}}}")
    with raises_code(ProcessError, "process_failed", "no launcher here"):
        launch.start_processes(config, 2, ["train"])


def test_a_launcher_that_another_training_refuses_leaves_nothing(plain, tmp_path):
    folder = tmp_path / "run"
    config = config_of(tmp_path, f"Global: {{save_model_dir: {folder}}}")
    with launch.locked_folder(folder):
        before = list(folder.iterdir())
        with raises_code(ConfigError, "folder_in_use", os.getpid()):
            launch.start_processes(config, 2, ["train"])
        assert list(folder.iterdir()) == before


def test_the_process_that_starts_the_others_has_no_paddle():
    script = "import sys, ppocr_ext.loop.launch; sys.exit('paddle' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_command_refuses_before_it_reads_anything(plain, capsys):
    assert main(["train", "-c", "nowhere.yml", "--processes", "-1"]) == 2
    assert "[bad_value]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({}, "of the same size: --processes 2 -o Train.loader.batch_size_per_card=32"),
        ({"cores": 64}, "--processes 8 -o Train.loader.batch_size_per_card=8"),  # for BatchNorm
        (
            {"cores": 3},
            "of the same size (nearly: 3 x 21): --processes 3 -o Train.loader.batch_size_per_card=21",
        ),
        ({"sampler": "{name: MultiScaleSampler}"}, "--processes 2 -o Train.sampler.first_bs=64"),
        ({"batch": 8}, None),
        ({"weights": 200_000}, None),
        ({"threads": "1"}, None),
        ({"cores": 1}, None),
        ({"device": "gpu"}, None),
        ({"sync_bn": "true"}, None),
        ({"checkpoint": "run/latest"}, None),
    ],
)
def test_a_training_that_leaves_cores_idle_says_how_to_use_them(
    plain, tmp_path, monkeypatch, caplog, change, advice
):
    facts = {"cores": 2, "batch": 64, "weights": 5_000_000, "threads": None, "device": "cpu", **change}
    monkeypatch.setattr(launch, "usable_cores", lambda: facts["cores"])
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if facts["threads"]:
        monkeypatch.setenv("OMP_NUM_THREADS", facts["threads"])
    train = (
        f"Train: {{loader: {{batch_size_per_card: {facts['batch']}}}, sampler: {facts.get('sampler', '{}')}}}"
    )
    config = config_of(tmp_path, f"Global: {{use_sync_bn: {facts.get('sync_bn', 'false')}}}\n{train}")
    context = SimpleNamespace(config=config, device=facts["device"], checkpoint=facts.get("checkpoint"))
    with caplog.at_level("INFO"):
        launch.advise_processes(context, facts["weights"])
    if advice is None:
        assert caplog.text == ""
    else:
        assert advice in caplog.text
