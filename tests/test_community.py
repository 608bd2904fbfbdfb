"""Files for GitHub and for contributors: they parse, name commands of ours, and repeat no version differently."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_docs import wrong_commands

from ppocr_ext import __version__
from ppocr_ext.first_run import decisions, writing

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = [ROOT / ".github/workflows/ci.yml", ROOT / "docs/user-workflow.yml"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PRE_COMMIT = ROOT / ".pre-commit-config.yaml"
PIN = re.compile(r"^([\w-]+)==(\S+)$", re.MULTILINE)


def content(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def texts(value: Any) -> Iterator[str]:
    """Yield all texts in a tree of lists and dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def steps(file: Path) -> list[dict[str, Any]]:
    return [step for job in content(file)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_runs_commands_of_ours(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [step["run"] for step in steps(file) if "run" in step]
    assert sum("ppocr-ext" in line for line in lines) >= 1
    assert wrong_commands(lines, monkeypatch) == []
    installed = [line for line in lines if re.search(r"ppocr-ext\[", line)]
    assert all(f"]=={__version__.partition('.')[0]}.*" in line for line in installed)
    assert all(("run" in step) != ("uses" in step) for step in steps(file))
    scripts = [
        word
        for line in lines
        for word in shlex.split(line, comments=True)
        if word.startswith((".ci", "tests/"))
    ]
    assert [script for script in scripts if not (ROOT / script).is_file()] == []


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.name)
def test_a_form_asks_for_commands_of_ours(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    form = content(file)
    if file.name == "config.yml":
        assert form == {"blank_issues_enabled": False}
        return
    assert {"name", "description", "body"} <= form.keys()
    fields = [each for each in form["body"] if each["type"] != "markdown"]
    assert len({each["id"] for each in fields}) == len(fields) and all(
        each["attributes"]["label"] for each in fields
    )
    assert any(each.get("validations", {}).get("required") for each in fields)
    named = [line for text in texts(form) for line in re.findall(r"`(ppocr-ext [^`]+)`", text)]
    assert named and wrong_commands(named, monkeypatch) == []
    linked = [path for text in texts(form) for path in re.findall(r"blob/HEAD/([\w/.]+)", text)]
    assert [path for path in linked if not (ROOT / path).is_file()] == []


def test_pre_commit_and_ci_lint_with_the_same_versions() -> None:
    pins = dict(PIN.findall((ROOT / ".ci/lint.txt").read_text(encoding="utf-8")))
    hooks = {
        hook["id"]: (repo["rev"], hook) for repo in content(PRE_COMMIT)["repos"] for hook in repo["hooks"]
    }
    assert {name: rev for name, (rev, _) in hooks.items()} == {
        "ruff-check": f"v{pins['ruff']}",
        "ruff-format": f"v{pins['ruff']}",
        "mypy": f"v{pins['mypy']}",
    }
    others = dict(each.split("==") for each in hooks["mypy"][1]["additional_dependencies"])
    assert others == {name: version for name, version in pins.items() if name not in ("ruff", "mypy")}


def test_ci_tests_the_oldest_and_the_newest_versions_of_the_table() -> None:
    page = (ROOT / "docs/paddleocr.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| package ([\d.]+) \| ([\d.]+) \| ([\d., ]+) \| ([\d.]+) \| passed", page, re.MULTILINE
    )
    tested = {
        (host, paddle, numpy, python) for host, paddle, listed, python in rows for numpy in listed.split(", ")
    }
    matrix = content(WORKFLOWS[0])["jobs"]["tests"]["strategy"]["matrix"]["include"]
    ours = [(each["paddleocr"], each["paddle"], each["numpy"], each["python"]) for each in matrix]
    assert set(ours) <= tested
    order = [[tuple(map(int, version.split("."))) for version in each[:2]] for each in tested]
    first, last = ([tuple(map(int, version.split("."))) for version in ours[i][:2]] for i in (0, -1))
    assert (first, last) == (min(order), max(order))


@pytest.mark.e2e
def test_the_workflow_for_users_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On what `init`, `train` and `export` write: it passes, and fails for a label without its image."""
    from ppocr_ext.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(decisions, "DRAWN", 40)
    monkeypatch.setattr(writing, "GENERAL_LINES", 4)
    short = "Global.epoch_num=1 Global.print_batch_step=1 Train.dataset.label_file_list=[first/train.txt]"
    for line in (
        "make-dataset lines --out photos --train 16 --val 0 --length 4 8",
        "init photos --out first",
        f"train -c first/config.yml -o {short}",
        "init photos --base first/run",
        "export first/run --output model",
    ):
        assert main(line.split()) == 0
    shutil.copytree("model", "before/model")

    script = Path(sys.executable).with_name("ppocr-ext")
    lines = [step["run"] for step in steps(WORKFLOWS[1]) if step.get("run", "").startswith("ppocr-ext ")]
    assert len(lines) == 5
    codes = {}
    for line in lines:
        codes[line] = subprocess.run([script, *shlex.split(line)[1:]], check=False).returncode
    assert set(codes.values()) == {0}, codes
    with Path("my/train.txt").open("a", encoding="utf-8") as file:
        file.write("photos/missing.png\ttext\n")
    assert subprocess.run([script, *shlex.split(lines[0])[1:]], check=False).returncode == 2
