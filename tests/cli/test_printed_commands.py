"""Commands that the program prints can be pasted into a shell as they are."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import captchas, tiny  # noqa: F401
from waiting import HANG

from ppocr_ext.config.node import Place
from ppocr_ext.config.yaml_io import read_value
from ppocr_ext.errors import ConfigError
from ppocr_ext.messages import command_line, setting
from ppocr_ext.recipes.quickstart_job import QuickstartOptions, run_quickstart

ROOT = Path(__file__).resolve().parents[2]
STOPPING = """
import os, signal
from ppocr_ext.loop.adapter import HostLoop

before = HostLoop._step_done


def step_done(self, lr):
    before(self, lr)
    if self.position.global_step == 2 and not os.path.exists("stopped"):
        open("stopped", "w").close()
        signal.raise_signal(signal.SIGINT)


HostLoop._step_done = step_done
"""


@pytest.mark.parametrize("value", ["output/my run/latest", "a #b", "a: b", "[a]", "12", "日本", "it's", "-x"])
def test_a_value_is_read_back_as_the_same_text(value: str) -> None:
    (option,) = shlex.split(shlex.quote(setting("Global.checkpoints", value)))
    assert read_value(option.partition("=")[2], Place("-o", "-o")).value == value


def test_a_host_and_names_with_spaces_are_in_the_command() -> None:
    line = command_line("eval", "-c", Path("my run/config.yml"), host="a b")
    assert shlex.split(line) == ["ppocr-ext", "eval", "--host", "a b", "-c", "my run/config.yml"]


def found_in(output: str, what: str) -> str:
    """The command behind ``what``, in one line of ``output``."""
    match = re.search(rf"{what}: (ppocr-ext .*)$", output, re.MULTILINE)
    assert match is not None, output
    return match[1]


def test_a_stopped_run_goes_on_and_is_judged_by_what_it_prints(tiny: Any, tmp_path: Path) -> None:  # noqa: F811
    work = tmp_path / "a folder"
    (work / "bin").mkdir(parents=True)
    script = work / "bin" / "ppocr-ext"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ppocr_ext.cli.main "$@"\n')
    script.chmod(0o755)
    (work / "stopping.py").write_text(STOPPING)
    config = tiny("student", **{"Global.save_model_dir": "my runs/#1", "Global.plugins": ["stopping"]})
    (work / "my config.yml").write_text(config.to_yaml())
    environment = {**os.environ, "PATH": f"{work}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def shell(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, cwd=work, env=environment, capture_output=True, text=True, timeout=HANG
        )

    stopped = shell("ppocr-ext train -c 'my config.yml'")
    assert stopped.returncode == 130, stopped.stdout + stopped.stderr
    finished = shell(found_in(stopped.stdout + stopped.stderr, "resume with"))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    record = json.loads((work / "my runs/#1/run.json").read_text())
    assert (record["status"], record["resumed_from_step"]) == ("finished", 2)
    judged = shell(found_in(finished.stdout + finished.stderr, "evaluate it"))
    assert judged.returncode == 0 and "evaluated: 10" in judged.stdout, judged.stdout + judged.stderr


def test_a_quickstart_with_other_options_gives_the_command_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "quick start"
    folder.mkdir()
    (folder / "quickstart.json").write_text('{"preset": "quickstart", "minutes": 5, "seed": 2}')
    with pytest.raises(ConfigError) as caught:
        run_quickstart(folder, QuickstartOptions(), 1)
    words = shlex.split(str(caught.value).splitlines()[-1])
    assert words[:4] == ["ppocr-ext", "quickstart", "--out", str(folder)]
    assert words[4:] == ["--preset", "quickstart", "--minutes", "5", "--seed", "2"]
